"""The plain path: pictures that only Pillow reads."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import PIL
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError, _native
from fastio.cli import cli
from fastio.codec import codec
from fastio.codec.codec import Geometry
from fastio.codec.copied import RawCodec
from fastio.codec.pillow import decode_with_pillow, pillow_takes_cheaper_pass_first
from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.errors import SourceError
from fastio.transforms import RandomResizedCrop
from tests.codec.png_writer import SIGNATURE, chunk
from tests.codec.test_png import decode
from tests.conftest import as_spans, encode, pictures, write_store

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def written(kind: str) -> bytes:
    """The pixels as a file of this kind."""
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, kind)
    return buffer.getvalue()


def test_other_kinds() -> None:
    """A kind without a native decoder is UNSUPPORTED, and Pillow reads it."""
    file = written("TIFF")
    assert decode(file, (6, 8), 3)[0] == _native.UNSUPPORTED
    assert decode_with_pillow(file, "RGB").pixels.shape == (6, 8, 3)
    assert decode_with_pillow(np.frombuffer(file, np.uint8), "L").pixels.shape == (6, 8, 1)


def test_pixels_come_through() -> None:
    """A lossless kind gives the pixels that were written."""
    np.testing.assert_array_equal(PIXELS, decode_with_pillow(written("BMP"), "RGB").pixels)


@pytest.mark.parametrize("data", [b"", b"no picture at all", written("BMP")[:60], written("TIFF")[:40]])
def test_what_pillow_cannot_read_is_a_value_error(data: bytes) -> None:
    """Whatever Pillow raises becomes a ValueError of one line."""
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        decode_with_pillow(data, "RGB")


def test_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that Pillow refuses for its size is a ValueError."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match="exceeds limit"):
        decode_with_pillow(written("BMP"), "RGB")


def test_warnings_stay_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Pillow only warns of is decoded, and the warning reaches the caller."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.warns(Image.DecompressionBombWarning):
        assert decode_with_pillow(written("BMP"), "RGB").pixels.shape == (6, 8, 3)


# Decompression bombs: a picture that Pillow would refuse for its size is refused by every part of fastio.

SMALL, LARGE = (6, 6, 3), (10, 12, 3)  # 36 and 120 pixels
LIMIT = 50  # Pillow's: it warns above, and refuses above 100
REFUSED = r"announces 10 x 12 pixels, but more than 100 .* PIL.Image.MAX_IMAGE_PIXELS.*--max-pixels"
KINDS = ("PNG", "JPEG", "WEBP")


@pytest.fixture
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", LIMIT)


def store_of(path: Path, kind: str, *, shapes: bool = True) -> Path:
    """Three pictures, the second too large."""
    sizes = (SMALL, LARGE, SMALL)
    values = [encode(pictures(1, size)[0], kind) for size in sizes]
    return write_store(path, values, np.arange(3), shapes=np.array(sizes, np.int32) if shapes else None)


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize("transform", [np.asarray, lambda picture: np.asarray(picture.crop((0, 0, 2, 2)))])
def test_a_sample_is_refused(
    tmp_path: Path, kind: str, shapes: bool, transform: Callable[[Image.Image], NDArray[np.uint8]]
) -> None:
    """The error names key, size, limit and what raises it; the samples around are read."""
    dataset = FastDataset(store_of(tmp_path / "s.lmdb", kind, shapes=shapes), transform)

    with pytest.raises(SampleError, match=rf"'a/0001.png'\), field 'image': it {REFUSED}"):
        dataset[1]
    assert [0, 2] == [dataset[index][1] for index in (0, 2)]


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize("crop", [False, True])
def test_a_loader_refuses_it(tmp_path: Path, kind: str, shapes: bool, crop: bool) -> None:
    """Whole and cropped, raised, skipped or black: never decoded."""
    store = store_of(tmp_path / "s.h5", kind, shapes=shapes)
    transforms = [RandomResizedCrop(4)] if crop else []

    def labels(on_error: Literal["raise", "skip", "zero"]) -> list[list[int]]:
        with FastLoader(FastDataset(store), batch_size=3, transforms=transforms, on_error=on_error) as loader:
            batches = [(images, names.tolist()) for images, names in loader]
            assert ["a/0001.png"] == [error.key for error in loader.skipped]
        assert on_error == "skip" or not batches[0][0][1].any()
        return [names for _, names in batches]

    with pytest.raises(SampleError, match=REFUSED):
        labels("raise")
    assert [[0, 2]] == labels("skip")
    assert [[0, 1, 2]] == labels("zero")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("crop", [False, True])
def test_pillows_setting_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, crop: bool) -> None:
    """A program that sets Pillow's limit gets what it set: a warning above half of the most, silence without one."""
    dataset = FastDataset(store_of(tmp_path / "s.tar", kind))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    with pytest.warns(Image.DecompressionBombWarning) as warned:  # by us, and by Pillow where that decodes
        assert (12, 10) == dataset[1][0].size
    assert any("'a/0001.png') has 10 x 12 pixels" in str(warning.message) for warning in warned)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)

    assert (12, 10) == dataset[1][0].size
    with FastLoader(dataset, batch_size=1, transforms=[RandomResizedCrop(4)] if crop else []) as loader:
        assert 3 == len(list(loader))


def test_no_memory_is_asked_for(tmp_path: Path) -> None:
    """A PNG of 50,000 x 50,000 pixels in a few bytes is refused before anything is allocated for it."""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(100))), chunk(b"IEND", b""))
    store = write_store(tmp_path / "s.lmdb", [SIGNATURE + b"".join(parts)])

    with pytest.raises(SampleError, match="announces 50,000 x 50,000 pixels"):
        FastDataset(store)[0]
    (problem,) = verify(store, decode=True).problems
    assert "field 'image' announces 50,000 x 50,000 pixels" in problem.problem


def files(folder: Path) -> Path:
    """A folder with a small picture and a large one."""
    folder.mkdir()
    for name, size in (("a", SMALL), ("b", LARGE)):
        Image.fromarray(pictures(1, size)[0]).save(folder / f"{name}.png")
    return folder


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("pictures", [None, Raw(), Transcode(short_side=4)])
def test_packing_refuses_it(tmp_path: Path, pictures: Raw | Transcode | None) -> None:
    """A picture that could not be read again is not packed without a word."""
    folder = files(tmp_path / "files")

    with pytest.raises(SourceError, match=rf"files/b.png: {REFUSED}"):
        pack(open_source(folder), tmp_path / "s.lmdb", pictures=pictures)
    report = pack(open_source(folder), tmp_path / "s.lmdb", pictures=pictures, on_error="skip")
    assert (1, ["b.png"]) == (report.packed, [problem.key for problem in report.skipped])


def test_the_option_of_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--max-pixels N`` refuses what has more, 0 nothing; the setting of Pillow is not asked then."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", LIMIT)
    folder, store = files(tmp_path / "files"), tmp_path / "s.lmdb"

    def code(*arguments: str) -> int:
        return CliRunner().invoke(cli, list(arguments)).exit_code

    assert 1 == code("pack", str(folder), str(store))
    assert 1 == code("pack", str(folder), str(store), "--max-pixels", "118")
    assert 0 == code("pack", str(folder), str(store), "--max-pixels", "120")
    assert 1 == code("verify", str(store), "--decode", "--max-pixels", "118")
    assert 0 == code("verify", str(store), "--decode", "--max-pixels", "0")


def test_a_contact_sheet_of_what_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``show`` crosses it out, and draws it on request."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    store = write_store(tmp_path / "s.lmdb", [encode(pictures(1, (400, 400, 3))[0])])

    def said(*options: str) -> str:
        sheet = str(tmp_path / "sheet.png")
        return CliRunner().invoke(cli, ["show", str(store), "-o", sheet, "--overwrite", *options]).stderr

    assert "exceeds limit of 100000 pixels" in said()
    assert not said("--max-pixels", "0")


def test_a_picture_of_memory(tmp_path: Path) -> None:
    """Pillow's guard, too, comes before its decoder: a WebP's header is enough."""
    file = io.BytesIO()
    Image.fromarray(pictures(1, SMALL)[0]).save(file, "WEBP", lossless=True)
    data = bytearray(file.getvalue())
    data[21:25] = struct.pack("<I", 16_383 | 16_383 << 14)  # 16,384 x 16,384
    store = write_store(tmp_path / "s.lmdb", [bytes(data)])

    with pytest.raises(SampleError, match="announces 16,384 x 16,384 pixels"):
        FastDataset(store)[0]


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("command", [("io", "--workers", "0"), ("decode",)])
def test_measuring_refuses_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    """
    A folder with such a file is an error of one line, where Pillow reads the files too.

    Without worker processes, which do not have this test's limit where they are not forked (Python 3.14).
    """
    result = CliRunner().invoke(cli, ["bench", *command, str(files(tmp_path / "files"))])

    assert isinstance(result.exception, SystemExit)
    assert "exceeds limit" in result.stderr
    assert "Traceback" not in result.stderr


# Resizes take the order of passes of the installed Pillow, whichever that is.

HEIGHT, WIDTH = 97, 41
NEW_HEIGHT, NEW_WIDTH = 30, 60


@pytest.mark.skipif(".post" in PIL.__version__, reason="Pillow-SIMD counts versions of its own")
def test_the_order_is_that_of_the_version() -> None:
    """Pillow changed it in 13."""
    assert (int(PIL.__version__.split(".")[0]) >= 13) == pillow_takes_cheaper_pass_first()


@pytest.mark.parametrize("cheaper_first", [False, True])
def test_codecs_follow_it(cheaper_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tall picture that becomes wide has the pixels of the two passes in that order."""
    monkeypatch.setattr(codec, "pillow_takes_cheaper_pass_first", lambda: cheaper_first)
    (pixels,) = pictures(1, (HEIGHT, WIDTH, 3))
    middle = (WIDTH, NEW_HEIGHT) if cheaper_first else (NEW_WIDTH, HEIGHT)
    bilinear = Image.Resampling.BILINEAR
    expected = Image.fromarray(pixels).resize(middle, bilinear).resize((NEW_WIDTH, NEW_HEIGHT), bilinear)
    plan = np.array([[0, 0, WIDTH, HEIGHT, NEW_WIDTH, NEW_HEIGHT, 0, 0, NEW_WIDTH, NEW_HEIGHT, 0, 0, 0]], np.int32)
    out, status = np.empty((1, NEW_HEIGHT, NEW_WIDTH, 3), np.uint8), np.zeros(1, np.int32)
    geometry = Geometry(plan, fill=b"\0\0\0", stored=(HEIGHT, WIDTH))
    RawCodec().decode(as_spans([pixels.tobytes()]), out, status, geometry=geometry).wait()

    assert np.array_equal(np.asarray(expected), out[0])
