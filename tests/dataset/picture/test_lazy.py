"""A picture that waits behaves as Pillow's: attributes, copies, threads, errors, arrays."""

from __future__ import annotations

import copy
import io
import pickle
import struct
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, SampleError
from fastio.converters import open_source, pack
from fastio.converters.inspect.contact_sheet import shown_samples
from fastio.converters.inspect.verify import verify
from fastio.dataset.picture.lazy import LazyPicture
from fastio.store import open_store
from fastio.types.schema import RAW, Field
from tests.conftest import encode, pictures, write_store
from tests.dataset.picture.chains import files

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.filterwarnings("ignore:Palette images with Transparency"),
]

FILES = files(120, 90, seed=1)
NAMES = list(FILES)
FLIP = Image.Transpose.FLIP_LEFT_RIGHT


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of each kind, 120 pixels wide and 90 high."""
    return write_store(tmp_path_factory.mktemp("lazy") / "all.lmdb", list(FILES.values()), np.arange(len(FILES)))


def picture_of(store: Path, name: str, **options: Any) -> LazyPicture:
    """The waiting picture of one kind of file."""
    picture, _ = FastDataset(store, **options)[NAMES.index(name)]
    assert isinstance(picture, LazyPicture)
    return picture


def opened(name: str, mode: str = "RGB") -> Image.Image:
    """What ImageFolder's loader gives."""
    with Image.open(io.BytesIO(FILES[name])) as picture:
        return picture.convert(mode)


def is_waiting(picture: Image.Image) -> bool:
    """Whether nothing of it has been decoded."""
    return isinstance(picture, LazyPicture) and picture._core is None and picture._plan[0] is picture._origin


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all native decodings from now on, and ``verify`` of each."""
    from fastio.dataset.row_reader import RowReader

    seen: list[tuple[int, ...]] = []
    original = RowReader.decode

    def decode(self: RowReader, spans: Any, rows: Any, status: Any, **options: Any) -> Any:
        seen.append((*rows.shape[1:], int(options["verify"])))
        return original(self, spans, rows, status, **options)

    monkeypatch.setattr(RowReader, "decode", decode)
    return seen


def test_nothing_is_decoded_until_pixels_are_asked_for(store: Path, decodings: list[Any]) -> None:
    """Sizes, crops, a resize and flips decode nothing; then one call makes the result alone."""
    picture = picture_of(store, "jpeg").convert("RGB").crop((10, 20, 70, 60))
    picture = picture.resize((32, 24), Image.Resampling.LANCZOS).transpose(FLIP).crop((1, 2, 31, 22))

    assert (picture.size, picture.mode, picture.getbands()) == ((30, 20), "RGB", ("R", "G", "B"))
    assert is_waiting(picture)
    assert [] == decodings
    np.asarray(picture)
    assert [(20, 30, 3, 1)] == decodings


def test_thumbnail_and_draft_wait(store: Path) -> None:
    """``thumbnail`` waits unless Pillow averages blocks first; ``draft`` does nothing, as after a conversion."""
    picture, plain = picture_of(store, "jpeg"), opened("jpeg")

    assert picture.draft("L", (10, 10)) is None
    for each in (picture, plain):
        each.thumbnail((70, 70))
    assert is_waiting(picture)
    assert plain.size == picture.size
    assert plain.tobytes() == picture.tobytes()


@pytest.mark.parametrize("first", [Image.Transpose.ROTATE_90, FLIP])
def test_what_needs_two_plans_waits_too(store: Path, first: Image.Transpose) -> None:
    """A resize after a turn and a second resize wait, and are Pillow's to the bit."""
    waiting, plain = (
        each.transpose(first).resize((50, 40), Image.Resampling.BOX).resize((33, 20))
        for each in (picture_of(store, "jpeg"), opened("jpeg"))
    )

    assert isinstance(waiting, LazyPicture)
    assert waiting._core is None
    assert np.array_equal(np.asarray(plain), np.asarray(waiting))


def test_hamming_to_the_last_bit(tmp_path: Path) -> None:
    """Pillow computes HAMMING's weights from constants in single precision: here that decides about a pixel."""
    value = files(80, 95, seed=80)["progressive jpeg"]
    picture = FastDataset(write_store(tmp_path / "a.lmdb", [value]), mode="L")[0].resize((46, 66), 5)

    with Image.open(io.BytesIO(value)) as plain:
        assert np.array_equal(np.asarray(plain.convert("L").resize((46, 66), 5)), np.asarray(picture))


def test_several_crops_decode_the_whole_once(store: Path, decodings: list[Any]) -> None:
    """Ten crops of one picture are two decodings: of the first crop, and then of all; its checksum is compared once."""
    picture, plain = picture_of(store, "jpeg"), opened("jpeg")
    for left in range(10):
        box = (left, 3, left + 40, 50)
        assert np.array_equal(np.asarray(plain.crop(box)), np.asarray(picture.crop(box)))

    assert [(47, 40, 3, 1), (90, 120, 3, 0)] == decodings


def test_an_array_shares_the_decoded_pixels(store: Path) -> None:
    """``np.asarray`` copies nothing and is read-only as Pillow's; ``np.array`` is a copy that may be written to."""
    picture = picture_of(store, "jpeg")
    first, second, own = np.asarray(picture), np.asarray(picture), np.array(picture)

    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    own[:] = 0
    assert np.array_equal(np.asarray(opened("jpeg")), np.asarray(picture))


def test_writing_reaches_no_other_picture(store: Path) -> None:
    """What is written into a picture is in it, and neither in its arrays, copies, crops nor the next read."""
    dataset = FastDataset(store)
    picture, _ = dataset[0]
    before, twin, crop = np.asarray(picture), picture.copy(), picture.crop((0, 0, 5, 5))
    picture.putpixel((0, 0), (1, 2, 3))

    assert (1, 2, 3) == picture.getpixel((0, 0)) == tuple(np.asarray(picture)[0, 0])
    for other in (before, np.asarray(twin), np.asarray(crop), np.asarray(dataset[0][0])):
        assert np.array_equal(np.asarray(opened("jpeg"))[:5, :5], other[:5, :5])


def test_pixel_access_may_write_grey_pictures(store: Path) -> None:
    """``load()`` gives access that writes, in every mode."""
    for mode, colour in (("L", 7), ("RGB", (7, 8, 9)), ("RGBA", (7, 8, 9, 10))):
        picture = picture_of(store, "png", mode=mode)
        picture.load()[2, 1] = colour
        assert colour == picture.getpixel((2, 1))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_and_pickles(store: Path, copied: Callable[[Image.Image], Image.Image]) -> None:
    """A copy equals its original and knows its ``info``; a pickle is an ordinary picture and needs no store."""
    picture = picture_of(store, "jpeg with exif").resize((60, 50))
    twin = copied(picture)

    assert picture == twin == opened("jpeg with exif").resize((60, 50)) == picture
    assert twin.info["exif"] == picture.info["exif"]
    assert picture != picture.transpose(FLIP)
    assert b"fastio" not in pickle.dumps(picture)


def test_it_names_its_sample(store: Path) -> None:
    """``filename`` is the key and ``format`` the file's; what is made from it has no format, as in Pillow."""
    picture = picture_of(store, "webp")

    assert ("a/0017.png", "WEBP") == (picture.filename, picture.format)
    assert picture.resize((9, 9)).format is None
    assert "a/0017.png" == picture.resize((9, 9)).filename


def test_small_pictures_name_their_samples(tmp_path: Path) -> None:
    """Pictures that do not wait have a key and a format too."""
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", [encode(each) for each in pictures(3)]))

    assert ["a/0000.png", "a/0001.png"] == [picture.filename for picture in dataset.__getitems__([0, 1])]
    assert "PNG" == dataset[2].format


def test_exif_transpose(store: Path) -> None:
    """EXIF orientation is there, is applied when asked for, and is gone then."""
    picture = picture_of(store, "jpeg with exif")
    upright = ImageOps.exif_transpose(picture)

    assert (6, (120, 90)) == (picture.getexif()[0x0112], picture.size)
    assert (90, 120) == upright.size
    assert 0x0112 not in upright.getexif()
    assert ImageOps.exif_transpose(opened("jpeg with exif")).tobytes() == upright.tobytes()


def test_a_picture_keeps_its_own_bytes_alone(store: Path) -> None:
    """Read by pread, a picture that is kept lets the values go that were read with it; it outlives the store."""
    with FastDataset(store, read="pread") as dataset:
        kept = dataset.__getitems__(range(8))[0][0]
    spans, position = kept._origin._place

    assert len(FILES["jpeg"]) == len(spans.view(position)) == spans.sizes.sum()
    with pytest.raises(IndexError):
        spans.buffers.view(0, 0, len(FILES["jpeg"]) + 1)
    assert np.array_equal(np.asarray(opened("jpeg")), np.asarray(kept))


def test_threads_see_the_same_pixels(store: Path) -> None:
    """Threads that ask one picture at once get the same pixels."""
    picture = picture_of(store, "jpeg").resize((64, 48))
    arrays: list[Any] = []
    threads = [threading.Thread(target=lambda: arrays.append(np.asarray(picture))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    expected = np.asarray(opened("jpeg").resize((64, 48)))
    assert [True] * 8 == [np.array_equal(expected, each) for each in arrays]


def test_raw_pixels_wait_too(tmp_path: Path) -> None:
    """Raw pictures are cropped and resized natively as well."""
    pixels = pictures(2, (90, 70, 3))
    field = Field("image", RAW, "|u1", (90, 70, 3))
    picture = FastDataset(write_store(tmp_path / "a.h5", [each.tobytes() for each in pixels], field=field))[1]
    steps: Callable[[Image.Image], Image.Image] = lambda each: each.convert("L").crop((5, 6, 60, 80)).resize((30, 20))  # noqa: E731

    assert is_waiting(picture)
    assert (None, {}) == (picture.format, picture.info)
    assert steps(Image.fromarray(pixels[1])).tobytes() == steps(picture).tobytes()


def damaged(path: Path) -> Path:
    """Three photos of which the second has lost a bit since it was packed."""
    value = FILES["jpeg"]
    write_store(path, [value, FILES["progressive jpeg"], value], np.arange(3))
    content = bytearray(path.read_bytes())
    content[content.find(FILES["progressive jpeg"]) + 1000] ^= 4
    path.write_bytes(content)
    return path


def test_a_bad_sample_is_named_where_pixels_are_asked_for(tmp_path: Path) -> None:
    """SampleError comes with the pixels, once the transform looks at them, and says by itself which sample it was."""
    path = damaged(tmp_path / "a.lmdb")
    picture, _ = FastDataset(path)[1]
    assert (50, 40) == picture.resize((50, 40)).size

    for look in (np.asarray, Image.Image.load, lambda each: each.resize((9, 9)).tobytes()):
        with pytest.raises(SampleError, match=r"a/0001\.png.* checksum"):
            look(picture)
    with pytest.raises(SampleError) as caught:
        FastDataset(path, np.array)[1]
    assert (1, "a/0001.png", "image") == (caught.value.index, caught.value.key, caught.value.field)
    assert not hasattr(caught.value, "__notes__")


def to_tensor(picture: Image.Image) -> torch.Tensor:
    """A crop as a tensor, as torchvision makes it."""
    return torch.from_numpy(np.array(picture.resize((20, 10)), copy=True)).permute(2, 0, 1).contiguous()


def test_a_bad_sample_in_the_transform_is_left_out(tmp_path: Path) -> None:
    """FastLoader's plain path takes a SampleError from within the transform for what it is."""
    dataset = FastDataset(damaged(tmp_path / "a.lmdb"), to_tensor)

    with FastLoader(dataset, 3, on_error="skip") as loader:
        assert [[0, 2]] == [labels.tolist() for _, labels in loader]
        assert ["a/0001.png"] == [error.key for error in loader.skipped]
    with FastLoader(dataset, 3, on_error="zero") as loader:
        images, labels = next(iter(loader))
        assert ([0, 1, 2], 0) == (labels.tolist(), int(images[1].sum()))


def as_list(batch: list[Any]) -> list[Any]:
    """A batch of pictures as they are."""
    return batch


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
def test_pictures_come_out_of_workers(store: Path, workers: int, context: str | None) -> None:
    """A collate that hands pictures on gets them decoded from workers, and waiting without any."""
    loader = DataLoader(
        FastDataset(store),
        batch_size=4,
        num_workers=workers,
        multiprocessing_context=context,
        collate_fn=as_list,
    )
    for picture, label in (sample for batch in loader for sample in batch):
        assert np.array_equal(np.asarray(opened(NAMES[label])), np.asarray(picture))


# Pictures whose size in the file is not the one that Pillow decodes them to.

ORIENTATION = 274
PIXELS = pictures(1, (6, 9, 3))[0]


def tiff(orientation: int, **options: Any) -> bytes:
    """Pixels of 6 x 9 (height x width) under this orientation."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "TIFF", tiffinfo={ORIENTATION: orientation}, **options)
    return file.getvalue()


def gif(screen: tuple[int, int]) -> bytes:
    """A first frame of 9 x 6 (width x height) on a logical screen of another size."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert("P").save(file, "GIF", comment=b"before the frame")
    data = bytearray(file.getvalue())
    data[6:10] = struct.pack("<HH", *screen)
    return bytes(data)


def by_pillow(file: bytes) -> NDArray[np.uint8]:
    """The pixels as Pillow gives them."""
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


TIFFS = {str(orientation): tiff(orientation) for orientation in range(1, 9)}
TIFFS |= {"6-lzw": tiff(6, compression="tiff_lzw")}
GIFS = {"small": gif((4, 3)), "large": gif((12, 7))}


@pytest.mark.parametrize("name", TIFFS)
def test_read_as_pillow_gives_them(tmp_path: Path, name: str) -> None:
    """The dataset, the loader, verify and show agree with Pillow about the picture's size and pixels."""
    file = TIFFS[name]
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.tiff").write_bytes(file)
    store = tmp_path / "s.lmdb"
    pack(open_source(folder), store)
    expected = by_pillow(file)

    with open_store(store) as opened:
        assert expected.shape[:2] == tuple(opened.shapes("image")[0, :2].tolist())
        (shown,) = shown_samples(opened, count=1, size=32)
    assert isinstance(shown.picture, Image.Image)
    np.testing.assert_array_equal(expected, np.asarray(FastDataset(store)[0]))
    (batch,) = FastLoader(FastDataset(store), batch_size=1)
    np.testing.assert_array_equal(expected, batch[0].permute(1, 2, 0).numpy())
    assert [] == list(verify(store, decode=True).problems)


@pytest.mark.parametrize(("suffix", "file"), [("tiff", TIFFS["6"]), *(("gif", file) for file in GIFS.values())])
def test_read_from_shards_of_others(tmp_path: Path, suffix: str, file: bytes) -> None:
    """Without an index of ours the size comes from the header, and is the same."""
    shard = tmp_path / "s.tar"
    with tarfile.open(shard, "w") as archive:
        member = tarfile.TarInfo(f"a.{suffix}")
        member.size = len(file)
        archive.addfile(member, io.BytesIO(file))

    np.testing.assert_array_equal(by_pillow(file), np.asarray(FastDataset(shard)[0]))


def test_verify_decodes_to_the_size_in_the_index(tmp_path: Path) -> None:
    """A picture that could not be read, for its index says another size, does not pass."""
    file = tiff(6)
    store = write_store(tmp_path / "s.lmdb", [file], shapes=np.array([[6, 9, 3]], np.int32))

    (problem,) = verify(store, decode=True).problems

    assert "field 'image' is 9x6 (height x width), but the index says 6x9; pack it again" == problem.problem
