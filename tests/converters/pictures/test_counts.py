"""Progressive and CMYK photos are counted while they are packed, and named by pack's summary."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fastio.cli import cli
from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.packing.advice import packing_lines
from fastio.store import open_store


def photo(seed: int, mode: str = "RGB", *, progressive: bool = False) -> bytes:
    """A small JPEG of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", progressive=progressive)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six JPEGs, of which three are progressive, one CMYK, and one both; and a PNG."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.jpg").write_bytes(photo(number))
        (folder / f"p{number}.jpg").write_bytes(photo(number, progressive=True))
    (folder / "q.jpg").write_bytes(photo(7, "CMYK"))
    (folder / "r.jpg").write_bytes(photo(8, "CMYK", progressive=True))
    Image.new("RGB", (5, 5)).save(folder / "s.png")
    return folder


def lines(path: Path) -> list[str]:
    """What a store says of its JPEGs."""
    with open_store(path) as store:
        return [line.split(" JPEGs")[0] for line in packing_lines(store.metadata) if " JPEGs" in line]


@pytest.mark.parametrize("name", ["a.lmdb", "a.tar", "a.h5"])
def test_counted(photos: Path, tmp_path: Path, name: str) -> None:
    """Every format's store knows how many there are."""
    pack(open_source(photos), tmp_path / name)
    assert ["progressive: 3 of 6", "CMYK: 2 of 6"] == lines(tmp_path / name)


def test_counted_over_shards(photos: Path, tmp_path: Path) -> None:
    """The counts of a set are those of all its shards, also of those that hold baseline JPEGs alone."""
    pack(open_source(photos), tmp_path / "a-%06d.tar", shard_bytes=3000)
    path = next(tmp_path.glob("*.json"), tmp_path)
    assert ["progressive: 3 of 6", "CMYK: 2 of 6"] == lines(path)


def test_summary(photos: Path, tmp_path: Path) -> None:
    """The command says what --restart would gain; after it, only what could not be rewritten is left."""
    out = tmp_path / "a.lmdb"
    result = CliRunner().invoke(cli, ["pack", str(photos), str(out)])
    assert 0 == result.exit_code, result.output
    assert "progressive: 3 of 6 JPEGs; random crops of them take about twice the CPU time" in result.output
    assert "--restart 8" in result.output

    pack(open_source(out), tmp_path / "b.lmdb", pictures=Transcode(restart=8))
    assert ["progressive: 1 of 6", "CMYK: 2 of 6"] == [
        line for line in lines(tmp_path / "b.lmdb") if not line.startswith("restart")
    ]


def test_pixels_are_not_counted(photos: Path, tmp_path: Path) -> None:
    """Decoded pictures are no JPEGs any more, and usual JPEGs need no line."""
    pack(open_source(photos), tmp_path / "a.lmdb", pictures=Raw((8, 8)))
    for number in range(2):
        (photos / f"p{number}.jpg").unlink()
    for name in ("q", "r"):
        (photos / f"{name}.jpg").unlink()
    pack(open_source(photos), tmp_path / "b.lmdb")
    assert [] == lines(tmp_path / "a.lmdb") == lines(tmp_path / "b.lmdb")
