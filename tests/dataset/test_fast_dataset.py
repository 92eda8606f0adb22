"""FastDataset: what a folder of pictures gives, in an unchanged script and an unchanged DataLoader."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset

from fastio import FastDataset, FastLoader, SampleError, SchemaError, open_store
from fastio.types.schema import BYTES, RAW, Field
from tests.conftest import SUFFIXES, encode, pictures, write_store

# torch warns where a test machine has a single CPU; Python 3.12 warns of any fork beside threads.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]


def to_tensor(image: Image.Image) -> torch.Tensor:
    """torchvision's PILToTensor, without torchvision."""
    return torch.from_numpy(np.array(image).reshape(image.height, image.width, -1)).permute(2, 0, 1)


class PilDataset(Dataset[Any]):
    """The dataset that people write by hand."""

    def __init__(self, values: list[bytes], labels: list[int]) -> None:
        self.values = values
        self.labels = labels

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(io.BytesIO(self.values[index])) as image:
            return to_tensor(image.convert("RGB")), self.labels[index]


def test_a_sample_is_a_picture_and_its_label(png_store: Path) -> None:
    """dataset[i] is what Pillow reads from the file, in RGB, and an int."""
    dataset = FastDataset(png_store)
    image, label = dataset[7]

    assert (image.mode, image.size) == ("RGB", (8, 8))
    assert np.array_equal(pictures(50)[7], np.array(image))
    assert (label, type(label)) == (1, int)
    assert len(dataset) == 50


def test_a_loop_over_it_does_not_end_early(png_store: Path) -> None:
    """An IndexError of a transform reaches the loop: it is not taken for the end of the samples."""
    dataset = FastDataset(png_store)
    assert len(list(dataset)) == 50

    dataset.transform = lambda image: image.getbands()[3]
    with pytest.raises(IndexError):
        list(dataset)


def test_it_looks_like_an_image_folder(png_store: Path) -> None:
    """classes, class_to_idx, targets and samples are what scripts expect of torchvision's ImageFolder."""
    dataset = FastDataset(png_store)

    assert dataset.classes == ["bee", "cat", "dog"]
    assert dataset.class_to_idx == {"bee": 0, "cat": 1, "dog": 2}
    assert dataset.targets == [index % 3 for index in range(50)]
    assert dataset.samples[:2] == [("a/0000.png", 0), ("a/0001.png", 1)]
    assert dataset.keys[-1] == "a/0049.png"


def test_classes_without_names_are_numbers(tmp_path: Path) -> None:
    """Where the source had numbers only, there are as many classes as the largest label says."""
    values = [encode(pixels) for pixels in pictures(3)]
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", values, np.array([0, 4, 1])))

    assert dataset.classes == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("labels", [[10**12, 7, 10**12], [-1, 0, -1], [65_536, 1, 1]])
def test_classes_of_labels_that_are_no_positions(tmp_path: Path, labels: list[int]) -> None:
    """Labels without names that are huge or negative are listed as they occur, and nothing is made for the gaps."""
    values = [encode(pixels) for pixels in pictures(3)]
    dataset = FastDataset(write_store(tmp_path / "s.lmdb", values, np.array(labels)))

    assert dataset.classes == [str(label) for label in sorted(set(labels))]
    assert dataset.class_to_idx == {str(label): label for label in labels}


def test_transforms_are_applied(png_store: Path) -> None:
    """transform gets a PIL image, target_transform the int."""
    dataset = FastDataset(png_store, lambda image: image.size, lambda label: label + 10)

    assert dataset[4] == ((8, 8), 11)
    assert dataset.__getitems__([4, 5]) == [((8, 8), 11), ((8, 8), 12)]


@pytest.mark.parametrize("index", [-50, -1, np.int64(3), torch.tensor(3)])
def test_indices_as_in_a_list(png_stores: dict[str, Path], index: Any) -> None:
    """Negative indices count from the end; numpy and torch integers are integers."""
    image, label = FastDataset(png_stores["h5"])[index]

    assert label == int(index) % 50 % 3
    assert np.array_equal(pictures(50)[int(index)], np.array(image))


@pytest.mark.parametrize("index", [50, -51, 1 << 70])
def test_outside_is_an_index_error(png_store: Path, index: int) -> None:
    """An index outside is refused, so that ``for sample in dataset`` ends."""
    with pytest.raises(IndexError, match=f"index {index} of 50 samples"):
        FastDataset(png_store).__getitems__([0, index, -1])
    with pytest.raises(IndexError, match="of 50 samples"):
        FastDataset(png_store)[index]

    assert len(list(FastDataset(png_store))) == 50  # type: ignore[call-overload]


def test_many_at_once_are_each_alone(png_store: Path) -> None:
    """__getitems__ gives the same as one by one, in the asked order, doubles included."""
    dataset = FastDataset(png_store, np.array)
    indices = [3, -1, 3, 40]

    for (image, label), index in zip(dataset.__getitems__(indices), indices, strict=True):
        assert np.array_equal(dataset[index][0], image)
        assert dataset[index][1] == label
    assert dataset.__getitems__([]) == []


def test_sizes_may_differ(tmp_path: Path) -> None:
    """Pictures of different sizes and kinds come each in their own, also from one call."""
    shapes = [(4, 6, 3), (5, 3, 3), (4, 6), (4, 6, 4), (4, 6, 3)]
    pixels = [pictures(1, shape, seed)[0] for seed, shape in enumerate(shapes)]
    store = write_store(tmp_path / "a.lmdb", [encode(each) for each in pixels])

    as_stored = FastDataset(store, mode=None).__getitems__(range(5))
    in_rgb = FastDataset(store).__getitems__(range(5))

    assert [image.mode for image in as_stored] == ["RGB", "RGB", "L", "RGBA", "RGB"]
    for image, rgb, each in zip(as_stored, in_rgb, pixels, strict=True):
        assert np.array_equal(each, np.array(image))
        assert np.array_equal(np.array(Image.fromarray(each).convert("RGB")), np.array(rgb))


def test_labels_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    """Text is one clear error, wherever labels are first asked for."""
    store = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(2)], np.array(["cat", "dog"]))

    for use in (lambda: FastDataset(store)[0], lambda: FastDataset(store).targets, lambda: list(FastLoader(store, 1))):
        with pytest.raises(SchemaError, match=r"a\.lmdb: column 'label': expected numbers as labels, got <U3"):
            use()


@pytest.mark.parametrize("largest", [2**63 - 1, 2**63])
def test_labels_beyond_int64_are_refused(tmp_path: Path, largest: int) -> None:
    """A label that int64 cannot hold does not become a negative one."""
    values = [encode(pixels) for pixels in pictures(2)]
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", values, np.array([1, largest], np.uint64)))

    if largest < 2**63:
        assert dataset.targets == [1, largest]
    else:
        with pytest.raises(SchemaError, match="a label is 9223372036854775808"):
            dataset[0]


def test_without_labels_the_picture_alone(tmp_path: Path) -> None:
    """A store without a label column gives no invented label."""
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(2)]))

    assert isinstance(dataset[0], Image.Image)
    assert (dataset.targets, dataset.classes) == ([], [])


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((4, 5, 3), "|u1", "RGB"),
        ((4, 5), "|u1", "L"),
        ((4, 5, 1), "|u1", "L"),
        ((2, 3), "<f4", None),
        ((7,), "|u1", None),
    ],
)
def test_raw_arrays(tmp_path: Path, shape: tuple[int, ...], dtype: str, kind: str | None) -> None:
    """Raw bytes that are a picture come as one, other raw arrays as numpy arrays of their dtype."""
    arrays = [np.random.default_rng(seed).integers(0, 99, shape).astype(dtype) for seed in range(3)]
    field = Field("image", RAW, dtype, shape)
    dataset = FastDataset(write_store(tmp_path / "a.h5", [each.tobytes() for each in arrays], field=field))

    for sample, array in zip(dataset.__getitems__([0, 1, 2]), arrays, strict=True):
        assert (sample.mode if kind else sample.dtype) == (kind or np.dtype(dtype))
        assert np.array_equal(array.reshape(np.array(sample).shape), np.array(sample))


def test_an_unknown_codec_is_one_clear_error(tmp_path: Path) -> None:
    """A store of a later fastio is refused with its field, its codec and the way out."""
    store = write_store(tmp_path / "a.lmdb", [b"abc"], field=Field("x", "audio", "|u1", (None,)))

    with pytest.raises(SchemaError, match=r"a\.lmdb: field 'x' has the codec 'audio', .*: upgrade fastio"):
        FastDataset(store)


def test_plain_bytes(tmp_path: Path) -> None:
    """A field of bytes comes as bytes."""
    field = Field("text", BYTES, "|u1", (None,))
    dataset = FastDataset(write_store(tmp_path / "a.tar", [b"one", b"", b"three"], field=field))

    assert list(dataset.__getitems__([2, 1, 0])) == [b"three", b"", b"one"]


def test_a_kind_for_pillow(tmp_path: Path) -> None:
    """A picture that the native decoders leave to Pillow (WebP) is the same as through Pillow."""
    value = encode(pictures(1, (16, 16, 3))[0], "WEBP")
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", [value]))

    assert np.array_equal(np.array(Image.open(io.BytesIO(value)).convert("RGB")), np.array(dataset[0]))


def test_a_bad_picture_is_named(tmp_path: Path) -> None:
    """SampleError tells shard, index, key and field, and survives pickling."""
    values = [encode(pixels) for pixels in pictures(3)]
    values[1] = values[1][:50]
    path = write_store(tmp_path / "a.lmdb", values)

    with pytest.raises(SampleError) as caught:
        FastDataset(path)[1]
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.path, error.index, error.key, error.field) == (str(path), 1, "a/0001.png", "image")
    assert str(error).startswith(f"{path}[1] ('a/0001.png'), field 'image': ")


def flipped_in_3(path: Path, field: Field) -> Path:
    """Six labelled values of 192 bytes; one bit of number 3 is not as it was packed."""
    values = [pixels.tobytes() for pixels in pictures(6)]
    write_store(path, values, np.arange(6), field=field)
    content = bytearray(path.read_bytes())
    content[content.find(values[3]) + 5] ^= 1
    path.write_bytes(content)
    return path


RAW_PICTURE = Field("image", RAW, "|u1", (8, 8, 3))


@pytest.mark.parametrize("field", [RAW_PICTURE, Field("text", BYTES, "|u1", (None,))])
def test_one_flipped_bit_is_a_sample_error(tmp_path: Path, suffix: str, field: Field) -> None:
    """Where only the checksum can tell, a changed bit is SampleError, and the samples beside it are read."""
    dataset = FastDataset(flipped_in_3(tmp_path / f"a.{suffix}", field))

    assert [label for _, label in dataset.__getitems__([0, 1, 2, 4, 5])] == [0, 1, 2, 4, 5]
    with pytest.raises(SampleError, match=r"a/0003\.png.* checksum") as caught:
        dataset[3]
    assert (caught.value.index, caught.value.key, caught.value.field) == (3, "a/0003.png", field.name)


def test_one_flipped_bit_comes_out_of_a_worker(tmp_path: Path) -> None:
    """SampleError stays SampleError on its way from a DataLoader worker, and names the sample."""
    dataset = FastDataset(flipped_in_3(tmp_path / "a.lmdb", RAW_PICTURE), to_tensor)
    batches = iter(DataLoader(dataset, batch_size=2, num_workers=2))

    assert next(batches)[1].tolist() == [0, 1]
    with pytest.raises(SampleError, match=r"a/0003\.png.* checksum"):
        next(batches)


def test_a_transform_that_fails_learns_the_sample(png_store: Path) -> None:
    """The user's exception stays what it is, with a note that names the sample."""
    with pytest.raises(ZeroDivisionError) as caught:
        FastDataset(png_store, lambda image: 1 // 0)[3]
    assert "a/0003.png" in caught.value.__notes__[0]


def test_a_subclass_with_its_own_getitem_is_respected(png_store: Path) -> None:
    """torch calls __getitems__; a subclass that overrides only __getitem__ must not be passed over."""

    class Doubled(FastDataset):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return to_tensor(image) * 2, label

    images, _ = next(iter(DataLoader(Doubled(png_store), batch_size=2)))
    assert np.array_equal(pictures(50)[0].transpose(2, 0, 1) * 2, images[0].numpy())


def test_a_subclass_may_be_a_part_of_its_store(png_store: Path) -> None:
    """super().__getitem__ means the store's samples, also beyond the subclass' own length."""

    class Even(FastDataset):
        def __len__(self) -> int:
            return 25

        def __getitem__(self, index: int) -> Any:
            if index >= 25:
                raise IndexError(index)
            return super().__getitem__(2 * index)

    dataset = Even(png_store, to_tensor)
    expected = [2 * index % 3 for index in range(25)]
    assert expected == [label for _, label in dataset]  # type: ignore[attr-defined]
    assert expected == [label for _, label in dataset.iterable()]
    for batches in (DataLoader(dataset, batch_size=25), FastLoader(dataset, 25)):
        images, labels = next(iter(batches))
        assert expected == labels.tolist()
        assert np.array_equal(pictures(50)[48].transpose(2, 0, 1), images[24].numpy())


def test_a_shorter_subclass_ends_where_it_says(png_store: Path) -> None:
    """A subclass that changes only its length has no samples beyond it, and counts from its own end."""

    class First(FastDataset):
        def __len__(self) -> int:
            return 10

    dataset = First(png_store)
    assert len(list(dataset)) == 10  # type: ignore[call-overload]
    assert np.array_equal(np.array(dataset[9][0]), np.array(dataset[-1][0]))
    with FastLoader(dataset, 4, shuffle="full") as loader:
        assert sorted(label for _, labels in loader for label in labels.tolist()) == [0] * 4 + [1] * 3 + [2] * 3


def test_it_is_pickled_by_path(png_store: Path) -> None:
    """A pickle holds no samples and no lists made on demand, and gives the same samples."""
    dataset = FastDataset(png_store, np.array)
    empty = len(pickle.dumps(dataset))
    assert len(dataset.targets) == len(dataset.keys) == 50
    copy = pickle.loads(pickle.dumps(dataset))

    assert empty == len(pickle.dumps(dataset)) < 4000
    assert np.array_equal(dataset[5][0], copy[5][0])


def test_a_pickle_does_not_grow_with_the_store(tmp_path: Path) -> None:
    """The sizes of pictures are in the store and do not travel; those that had to be probed do."""
    values = [encode(pixels) for pixels in pictures(1)] * 1000
    sizes = np.full((1000, 3), (8, 8, 3), np.int32)
    known = FastDataset(write_store(tmp_path / "a.lmdb", values, shapes=sizes))
    probed = FastDataset(write_store(tmp_path / "b.lmdb", values))
    assert known[7].size == probed[7].size
    copies = [pickle.loads(pickle.dumps(dataset)) for dataset in (known, probed)]

    assert len(pickle.dumps(known)) < 4000
    for copy in copies:
        assert copy.reader._shapes[7].tolist() == [8, 8, 3]
        assert np.array_equal(pictures(1)[0], np.array(copy[999]))


def test_an_open_store_is_taken(png_store: Path) -> None:
    """A store that is already open serves as well as a path."""
    with open_store(png_store) as store, FastDataset(store) as dataset:
        assert dataset[0][1] == 0


def test_an_unknown_mode_is_refused(png_store: Path) -> None:
    """A mode is one of three, or None."""
    with pytest.raises(ValueError, match="mode='CMYK'"):
        FastDataset(png_store, mode="CMYK")


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
def test_an_unchanged_dataloader(png_stores: dict[str, Path], workers: int, context: str | None) -> None:
    """The same script with the hand-written dataset and with FastDataset: identical batches."""
    values = [encode(pixels) for pixels in pictures(50)]
    mine = PilDataset(values, [index % 3 for index in range(50)])
    stores = SUFFIXES if context != "spawn" else ("lmdb",)  # a spawned worker imports torch: seconds
    theirs = "fork" if workers else None
    for each in stores:
        ours = FastDataset(png_stores[each], to_tensor)
        batches = [
            list(
                DataLoader(
                    dataset,
                    batch_size=16,
                    shuffle=True,
                    num_workers=workers,
                    multiprocessing_context=start,
                    generator=torch.Generator().manual_seed(1),
                )
            )
            for dataset, start in ((mine, theirs), (ours, context))
        ]
        assert len(batches[0]) == len(batches[1]) == 4
        for (images, labels), (our_images, our_labels) in zip(*batches, strict=True):
            assert torch.equal(images, our_images)
            assert torch.equal(labels, our_labels)


def test_a_subset_works(png_store: Path) -> None:
    """torch's Subset and random_split index into it as into any dataset."""
    subset = Subset(FastDataset(png_store, to_tensor), [4, 2])
    images, labels = next(iter(DataLoader(subset, batch_size=2)))

    assert labels.tolist() == [1, 2]
    assert np.array_equal(pictures(50)[2].transpose(2, 0, 1), images[1].numpy())


@pytest.mark.parametrize(("workers", "world_size"), [(0, 1), (0, 3), (1, 2), (2, 1), (2, 3)])
def test_sequential_pieces_make_the_whole(png_stores: dict[str, Path], workers: int, world_size: int) -> None:
    """All ranks' workers together read every sample once; one reader reads them in order."""
    seen: list[int] = []
    for rank in range(world_size):
        dataset = FastDataset(png_stores["tar"], _first_value).iterable(rank=rank, world_size=world_size)
        for values, _ in DataLoader(dataset, batch_size=4, num_workers=workers):
            seen += values.tolist()

    expected = [int(pixels.reshape(-1)[:4].view(np.uint32)[0]) for pixels in pictures(50)]
    assert sorted(expected) == sorted(seen)
    if workers == 0:
        assert expected == seen


def _first_value(image: Image.Image) -> int:
    """The first four bytes of a picture as a number: they name it."""
    pixels: NDArray[np.uint8] = np.array(image).reshape(-1)[:4]
    return int(pixels.view(np.uint32)[0])


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    """The error names the columns that there are, or says that there are none."""
    picture = encode(np.zeros((2, 2, 3), np.uint8))
    bare = FastDataset(write_store(tmp_path / "bare.lmdb", [picture]))
    labelled = FastDataset(write_store(tmp_path / "labelled.lmdb", [picture], np.zeros(1, np.int64)))

    with pytest.raises(SchemaError, match=r"bare\.lmdb: no column 'len'; this store has no columns"):
        bare.column("len")
    with pytest.raises(SchemaError, match=r"labelled\.lmdb: no column 'len'; this store has 'label'"):
        labelled.column("len")


# Subclasses that make samples themselves: FastDataset says so in one place, and all that read the store ask there.


class Longer(FastDataset):
    def __len__(self) -> int:
        return 100


class Relabelled(FastDataset):
    @property
    def targets(self) -> list[Any]:  # type: ignore[override] # as users do it
        return [0] * len(self)


class Single(FastDataset):
    def __getitem__(self, index: int) -> Any:
        return index


class Several(FastDataset):
    def __getitems__(self, indices: Any) -> list[Any]:
        return list(indices)


class WithBlank(Single):
    def blank(self, index: int) -> Any:
        return 0


class Mixin:
    def __getitem__(self, index: int) -> Any:
        return index


class Mixed(Mixin, FastDataset):  # type: ignore[misc] # as users do it
    pass


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FastDataset, (False, False)),
        (Longer, (False, False)),
        (Relabelled, (False, False)),
        (Single, (True, False)),
        (Several, (True, False)),
        (WithBlank, (True, True)),
        (Mixed, (True, False)),
    ],
)
def test_what_a_subclass_makes(png_store: Path, kind: type[FastDataset], expected: tuple[bool, bool]) -> None:
    """Its own __getitem__ or __getitems__, however inherited, makes samples; a length or labels of its own do not."""
    dataset = kind(png_store)

    assert (dataset.makes_samples, dataset.makes_blanks) == expected
    assert dataset.is_as_stored is not dataset.makes_samples


def test_a_transform_is_not_as_stored(png_store: Path) -> None:
    """A transform changes samples too, from the moment it is assigned."""
    dataset = FastDataset(png_store)
    assert dataset.is_as_stored
    dataset.transform = repr

    assert not dataset.is_as_stored
    assert not dataset.makes_samples
