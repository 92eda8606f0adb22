"""Masks on their way into a store and through the commands: kept byte for byte, checked, shown in colours."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import Writer
from fastio.codec.mask import MaskCodec
from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.inspect.contact_sheet import contact_sheet
from fastio.converters.inspect.verify import verify
from fastio.converters.packing.advice import packing_lines
from fastio.converters.pictures.probe import picture_shapes
from fastio.converters.sources.listed import ListedSource, Values, names_at
from fastio.errors import SourceError
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.protocol import read_values
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from fastio.types.spans import Spans
from tests.codec.conformance import spans_of

COUNT = 4
NUMBERS = np.random.default_rng(0).integers(0, 5, (COUNT, 6, 8), np.uint8)


def jpeg(seed: int) -> bytes:
    """A picture of the masks' size."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


def palette_png(numbers: NDArray[np.uint8]) -> bytes:
    """Indices into a palette of reds."""
    image, file = Image.fromarray(numbers).convert("P"), io.BytesIO()
    image.putpalette([number for red in range(256) for number in (255 - red, 0, 0)])
    image.putdata(numbers.reshape(-1).tolist())
    image.save(file, "PNG")
    return file.getvalue()


def source_of(masks: list[bytes], type_: str = "mask", boxes: bool = False) -> ListedSource:
    """Pictures and these masks; perhaps a box for each picture."""
    files = {"image": [jpeg(i) for i in range(len(masks))], "mask": masks}
    schema = [field_of("image", "image"), field_of("mask", type_)]
    if boxes:
        files["boxes"] = [np.arange(4, dtype="<f4").tobytes()] * len(masks)
        schema.append(field_of("boxes", "xyxy"))

    def read(indices: NDArray[np.int64], _pool: object) -> object:
        return lambda: Values({name: spans_of([values[i] for i in indices]) for name, values in files.items()})

    return ListedSource(
        path="pictures",
        kind="pairs",
        schema=Schema(tuple(schema)),
        metadata={},
        keys_at=names_at([f"{i}.jpg" for i in range(len(masks))]),
        sizes=np.full(len(masks), 1000),
        read=read,  # type: ignore[arg-type]
        disk_bytes=0,
        files_opened=0,
    )


def stored(path: Path, field: str) -> list[bytes]:
    """The values of a field."""
    with open_store(path) as store:
        return [view.tobytes() for view in read_values(store, field, np.arange(len(store))).views()]


@pytest.mark.parametrize("pictures", [Transcode(restart=1), Raw()])
def test_pictures_are_rewritten_and_masks_are_not(tmp_path: Path, pictures: Transcode | Raw) -> None:
    """What leaves sizes as they are touches pictures alone."""
    masks = [palette_png(numbers) for numbers in NUMBERS]
    pack(source_of(masks), tmp_path / "out.lmdb", pictures=pictures)

    assert masks == stored(tmp_path / "out.lmdb", "mask")
    assert [jpeg(i) for i in range(COUNT)] != stored(tmp_path / "out.lmdb", "image")
    assert [] == verify(tmp_path / "out.lmdb", decode=True, against=source_of(masks)).problems


@pytest.mark.parametrize("pictures", [Transcode(resize=(4, 4)), Transcode(short_side=3), Raw((4, 4))])
@pytest.mark.parametrize("boxes", [False, True])
def test_sizes_stay_beside_masks_and_boxes(tmp_path: Path, pictures: Transcode | Raw, boxes: bool) -> None:
    """Masks and boxes would no longer fit; nothing is written."""
    source = source_of([palette_png(numbers) for numbers in NUMBERS], boxes=boxes)
    names = "masks in 'mask', ragged <f4 of Nonex4 in 'boxes'" if boxes else "masks in 'mask'"
    with pytest.raises(SourceError, match=f"has {names}, which would no longer fit pictures of other sizes"):
        pack(source, tmp_path / "out.lmdb", pictures=pictures)
    assert [] == list(tmp_path.iterdir())


def test_masks_that_do_not_fit_are_skipped(tmp_path: Path) -> None:
    """They are in the ledger, with what to declare; the index has one channel for a palette."""
    masks = [palette_png(numbers) for numbers in NUMBERS]
    masks[1] = MaskCodec().encode(NUMBERS[0].astype(np.uint16))
    masks[2] = jpeg(0)
    with pytest.raises(
        SourceError, match=r"1\.jpg: field 'mask' is a PNG with 16-bit numbers.*declare the field mask1"
    ):
        pack(source_of(masks), tmp_path / "out.lmdb")

    report = pack(source_of(masks), tmp_path / "out.lmdb", on_error="skip")

    assert (2, 2) == (report.packed, len(report.skipped))
    assert "field 'mask' is a JPEG of 3 channels, but masks of 1 channel" in report.skipped[1].problem
    with open_store(tmp_path / "out.lmdb") as store:
        assert [[6, 8, 1]] * 2 == store.shapes("mask").tolist()


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_verify_decodes_masks(tmp_path: Path, suffix: str) -> None:
    """Damage that the checksums do not know, of native kinds and of Pillow's, is found and named."""
    bmp = io.BytesIO()
    Image.fromarray(NUMBERS[0]).save(bmp, "BMP")
    good = palette_png(NUMBERS[0])
    masks = [good, good[:-20] + bytes([good[-20] ^ 1]) + good[-19:], bmp.getvalue(), bmp.getvalue()[:-20]]
    path = tmp_path / f"out{suffix}"
    with create_store(path, Schema((field_of("mask", "mask"),))) as writer:
        writer.append(SampleBatch([f"{i}.png" for i in range(4)], {"mask": spans_of(masks)}, {}))

    report = verify(path, decode=True)

    assert ["1.png", "3.png"] == [problem.key for problem in report.problems]
    assert all(problem.problem.startswith("field 'mask' ") for problem in report.problems)


def test_masks_of_another_size_are_problems(tmp_path: Path) -> None:
    """A mask that is smaller than its picture would fail only when a crop is cut out of both."""
    masks = [palette_png(numbers) for numbers in NUMBERS]
    masks[2] = palette_png(NUMBERS[2][:3, :4])
    words = r"has a mask of 3x4 in 'mask', but its picture 'image' is 6x8 \(height x width\)"
    with pytest.raises(SourceError, match=rf"2\.jpg: {words}"):
        pack(source_of(masks), tmp_path / "out.lmdb")

    report = pack(source_of(masks), tmp_path / "out.lmdb", on_error="skip")
    assert (3, ["2.jpg"]) == (report.packed, [each.key for each in report.skipped])

    with Writer(tmp_path / "own.lmdb", fields={"image": "image", "mask": "mask"}, on_error="skip") as writer:
        for i, mask in enumerate(masks):
            writer.write({"image": jpeg(i), "mask": mask}, key=f"{i}.jpg")
    assert ["2.jpg"] == [each.key for each in writer.report.skipped]


def earlier(path: Path, masks: list[bytes]) -> Path:
    """A store of such masks as earlier versions packed them, whatever their sizes."""
    source = source_of(masks)
    with create_store(path, source.schema) as writer:
        every = np.arange(len(masks))
        spans = source.read(every, None)().spans
        shapes = {name: picture_shapes(each, source.schema[name]) for name, each in spans.items()}
        writer.append(SampleBatch(source.keys, spans, {}, shapes))
        writer.close({"classes": None, "source": {}, "skipped": []})
    return path


def test_verify_compares_sizes_of_masks(tmp_path: Path) -> None:
    """By the index alone in our stores, with --decode in tars of others; packing such a store again keeps all."""
    masks = [palette_png(numbers) for numbers in NUMBERS]
    masks[1] = palette_png(NUMBERS[1][:3, :4])
    ours = earlier(tmp_path / "old.lmdb", masks)
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        for i, mask in enumerate(masks):
            for name, data in ((f"{i}.jpg", jpeg(i)), (f"{i}.mask.png", mask)):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    for path, key, decode in ((ours, "1.jpg", False), (ours, "1.jpg", True), (tmp_path / "other.tar", "1", True)):
        problems = {each.key: each.problem for each in verify(path, decode=decode).problems}
        assert {key} == set(problems)
        assert "has a mask of 3x4 in 'mask', but its picture 'image' is 6x8" in problems[key]
    assert COUNT == pack(open_source(ours), tmp_path / "again.h5").packed


def grey_jpeg(numbers: NDArray[np.uint8]) -> bytes:
    """A mask that somebody saved as a JPEG."""
    file = io.BytesIO()
    Image.fromarray(numbers * 40).save(file, "JPEG")
    return file.getvalue()


def webp(numbers: NDArray[np.uint8], *, lossless: bool, exif: bytes = b"") -> bytes:
    """A mask in colours, saved as a WebP; with EXIF in the extended form."""
    file = io.BytesIO()
    Image.fromarray(np.stack([numbers * 40] * 3, axis=2)).save(file, "WEBP", lossless=lossless, exif=exif)
    return file.getvalue()


def test_lossy_webps_are_named(tmp_path: Path) -> None:
    """A lossy WebP changes numbers as a JPEG does, a lossless one keeps them."""
    masks = [
        webp(NUMBERS[0], lossless=True),
        webp(NUMBERS[1], lossless=False),
        webp(NUMBERS[2], lossless=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"),
        webp(NUMBERS[3], lossless=False, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"),
    ]
    with Writer(tmp_path / "own.tar", fields={"image": "image", "mask": "mask[3]"}) as writer:
        for i, mask in enumerate(masks):
            writer.write({"image": jpeg(i), "mask": mask}, key=f"{i}.jpg")

    assert "lossy masks: 2 of 4 in 'mask' are JPEGs or lossy WebPs, the first that of 1.jpg" in str(writer.report)
    assert masks == stored(tmp_path / "own.tar", "mask")


def test_masks_that_are_jpegs_are_named(tmp_path: Path) -> None:
    """Their numbers are not those that were drawn: pack, info and the Writer's report say it; PNGs need no word."""
    masks = [palette_png(NUMBERS[0]), *map(grey_jpeg, NUMBERS[1:])]
    line = "lossy masks: 3 of 4 in 'mask' are JPEGs or lossy WebPs, the first that of 1.jpg: such files have other"
    pack(source_of(masks), tmp_path / "a.lmdb")
    pack(source_of(masks[:1]), tmp_path / "good.lmdb")
    pack(open_source(tmp_path / "a.lmdb"), tmp_path / "b.h5", pictures=Transcode(restart=1))
    with Writer(tmp_path / "own.tar", fields={"image": "image", "mask": "mask"}) as writer:
        for i, mask in enumerate(masks):
            writer.write({"image": jpeg(i), "mask": mask}, key=f"{i}.jpg")

    assert line in str(writer.report)
    for name in ("a.lmdb", "b.h5", "own.tar"):
        with open_store(tmp_path / name) as store:
            assert [line] == [words[: len(line)] for words in packing_lines(store.metadata) if "lossy" in words]
    with open_store(tmp_path / "good.lmdb") as store:
        assert [] == packing_lines(store.metadata)


def test_a_sheet_of_masks(tmp_path: Path) -> None:
    """Masks are shown in their palette, or in a colour for each class; pictures come before masks."""
    grey = MaskCodec().encode(np.full((8, 8), 1, np.uint8))
    red = palette_png(np.zeros((8, 8), np.uint8))
    sheets = []
    for name, file in (("grey", grey), ("red", red)):
        with create_store(tmp_path / f"{name}.lmdb", Schema((field_of("mask", "mask"),))) as writer:
            writer.append(SampleBatch(["a"], {"mask": Spans.joined(np.frombuffer(file, np.uint8), sizes(file))}, {}))
        with open_store(tmp_path / f"{name}.lmdb") as store:
            sheet, problems = contact_sheet(store, size=64)
        assert [] == problems
        sheets.append(np.asarray(sheet))
    assert (sheets[0] == (128, 0, 0)).all(axis=2).sum() == 64 * 64
    assert (sheets[1] == (255, 0, 0)).all(axis=2).sum() == 64 * 64


def sizes(file: bytes) -> NDArray[np.int64]:
    """The size of one value."""
    return np.array([len(file)], np.int64)
