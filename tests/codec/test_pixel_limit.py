"""Decompression bombs: a picture that Pillow would refuse for its size is refused by every part of fastio."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError
from fastio.cli import cli
from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.verify import verify
from fastio.errors import SourceError
from fastio.transforms import RandomResizedCrop
from tests.codec.png_writer import SIGNATURE, chunk
from tests.conftest import encode, pictures, write_store

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
@pytest.mark.parametrize("command", ["io", "decode"])
def test_measuring_refuses_it(tmp_path: Path, command: str) -> None:
    """A folder with such a file is an error of one line, where Pillow reads the files too."""
    result = CliRunner().invoke(cli, ["bench", command, str(files(tmp_path / "files"))])

    assert isinstance(result.exception, SystemExit)
    assert "exceeds limit" in result.stderr
    assert "Traceback" not in result.stderr
