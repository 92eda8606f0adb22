"""A new kind of picture is one file and one row: it goes through everything that pictures go through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError
from fastio._native import image_kind
from fastio.cli import cli
from fastio.store import FORMATS
from fastio.transforms import CenterCrop, RandomResizedCrop, Resize
from fastio.types import picture_kinds
from fastio.types.picture_kinds import PICTURE_KINDS, add_picture_kind, extension_of, kind_by_name
from tests.commands import run
from tests.types.toy_kind import ROW, write_toy

COUNT = 12
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 9, 14, 3), np.uint8)


@pytest.fixture(scope="module", autouse=True)
def toy() -> Iterator[int]:
    """The one row that a new kind adds to fastio, and its number; other tests compare the table with Pillow."""
    number = add_picture_kind(ROW)
    yield number
    PICTURE_KINDS.pop()
    del picture_kinds._KINDS["toy"]


def class_folders(folder: Path) -> Path:
    """Write class folders of such files."""
    for number, pixels in enumerate(PIXELS):
        path = folder / ("cat", "dog")[number % 2] / f"{number:02d}.toy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write_toy(pixels))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Class folders of its own."""
    return class_folders(tmp_path / "source")


@pytest.fixture(scope="module", params=sorted(FORMATS))
def packed(request: pytest.FixtureRequest, toy: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files packed, in each format."""
    folder = tmp_path_factory.mktemp("packed")
    source = class_folders(folder / "source")
    path = folder / f"store{FORMATS[request.param].suffixes[0]}"
    assert f"packed {COUNT} of {COUNT}" in run("pack", source, path)
    return path


def sorted_pixels() -> np.ndarray:
    """In the order of the packed samples: by class, then by name."""
    return np.concatenate([PIXELS[0::2], PIXELS[1::2]])


def test_detected(toy: int) -> None:
    """By its first bytes, and by its name."""
    file = np.frombuffer(write_toy(PIXELS[0]), np.uint8)

    assert ROW is PICTURE_KINDS[toy]
    assert toy == image_kind(file) == kind_by_name("a.TOY")
    assert extension_of(file) == "toy"


def test_decoded(packed: Path) -> None:
    """The dataset and the loader give the pixels; transforms give what Pillow makes of them."""
    assert np.array_equal(sorted_pixels()[3], np.asarray(FastDataset(packed)[3][0]))
    with FastLoader(packed, 5, threads=2) as loader:
        rows = np.concatenate([images.numpy() for images, _ in loader])
    assert np.array_equal(sorted_pixels().transpose(0, 3, 1, 2), rows)
    chain = [Resize(7, "bicubic"), CenterCrop(6)]
    with FastLoader(packed, 5, transforms=chain) as loader:
        rows = np.concatenate([images.numpy() for images, _ in loader])
    small = Image.fromarray(sorted_pixels()[2]).resize((10, 7), Image.Resampling.BICUBIC).crop((2, 0, 8, 6))
    assert rows.shape == (COUNT, 3, 6, 6)
    assert np.array_equal(np.asarray(small), rows[2].transpose(1, 2, 0))


def test_two_epochs_alike_for_any_threads(packed: Path) -> None:
    """Order, transforms and receipts do not depend on threads."""
    epochs = []
    for threads in (1, 3):
        options = {"shuffle": True, "seed": 4, "transforms": [RandomResizedCrop(5)]}
        with FastLoader(packed, 4, threads=threads, **options) as loader:
            rows = [(images.numpy().copy(), labels.tolist()) for images, labels in loader]
            epochs.append((rows, str(loader.receipt())))
    assert epochs[0][1] == epochs[1][1]
    for (first, labels), (second, again) in zip(*(rows for rows, _ in epochs), strict=True):
        assert labels == again
        assert np.array_equal(first, second)


def test_shown_and_verified(packed: Path, tmp_path: Path) -> None:
    """``show`` draws it, ``info`` names it, ``verify`` decodes it."""
    run("show", packed, "--out", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 14
    assert {"Toy": COUNT} == json.loads(run("info", packed, "--json"))["fields"]["image"]["kinds"]
    assert "all good" in run("verify", packed, "--decode")


def test_unpacked(packed: Path, source: Path, tmp_path: Path) -> None:
    """The same files come out again."""
    run("unpack", packed, tmp_path / "out")
    files = {path.relative_to(source): path.read_bytes() for path in source.rglob("*.toy")}

    assert files == {
        path.relative_to(tmp_path / "out"): path.read_bytes() for path in (tmp_path / "out").rglob("*.toy")
    }


def test_resized_when_packed(source: Path, tmp_path: Path) -> None:
    """``--resize`` stores PNGs, ``--raw`` pixels."""
    run("pack", source, tmp_path / "small.lmdb", "--resize", "5x6")
    run("pack", source, tmp_path / "raw.lmdb", "--raw")
    with FastLoader(tmp_path / "small.lmdb", COUNT) as loader:
        ((images, _),) = loader
    assert images.shape == (COUNT, 3, 5, 6)
    with FastLoader(tmp_path / "raw.lmdb", COUNT) as loader:
        ((images, _),) = loader
    assert np.array_equal(sorted_pixels().transpose(0, 3, 1, 2), images.numpy())


@pytest.mark.parametrize("damage", ["cut", "no pixels"])
def test_refused_when_damaged(source: Path, tmp_path: Path, damage: str) -> None:
    """A damaged file is named, and not packed."""
    file = source / "cat" / "04.toy"
    file.write_bytes(file.read_bytes()[:-50] if damage == "cut" else write_toy(PIXELS[0, :0]))
    result = CliRunner().invoke(cli, ["pack", str(source), str(tmp_path / "a.lmdb")])

    assert result.exit_code != 0
    assert "cat/04.toy" in result.output
    assert ("its data end too early" if damage == "cut" else "is a Toy with a damaged header") in result.output


def test_damage_of_a_stored_one(source: Path, tmp_path: Path) -> None:
    """A changed byte is a SampleError with its key."""
    path = tmp_path / "a.zip"
    run("pack", source, path)
    data = path.read_bytes()
    at = data.index(write_toy(PIXELS[4])) + 40
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    with FastLoader(path, 4) as loader, pytest.raises(SampleError, match=r"cat/04\.toy.*checksum"):
        list(loader)
    with FastLoader(path, 4, on_error="skip") as loader:
        assert COUNT - 1 == sum(len(images) for images, _ in loader)
        assert ["cat/04.toy"] == [error.key for error in loader.skipped]


def test_a_kind_that_pillow_lacks(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what is missing."""
    Image.init()
    monkeypatch.setattr(Image, "ID", [name for name in Image.ID if name != "TOY"])
    result = CliRunner().invoke(cli, ["pack", str(source), str(tmp_path / "a.lmdb")])

    assert result.exit_code != 0
    assert "is a Toy, which the installed Pillow cannot open" in result.output


def test_written_by_a_program(tmp_path: Path) -> None:
    """``fastio.Writer`` takes the bytes for a picture."""
    from fastio import Writer

    with Writer(tmp_path / "a.lmdb") as writer:
        for number, pixels in enumerate(PIXELS):
            writer.write({"image": write_toy(pixels), "label": number})
    with FastLoader(tmp_path / "a.lmdb", COUNT) as loader:
        ((images, _),) = loader

    assert np.array_equal(PIXELS.transpose(0, 3, 1, 2), images.numpy())


def test_inside_a_table(tmp_path: Path) -> None:
    """A column that names such files is one of pictures."""
    for number in range(3):
        (tmp_path / f"{number}.toy").write_bytes(write_toy(PIXELS[number]))
    rows = "".join(f"{number}.toy,{number}\n" for number in range(3))
    (tmp_path / "table.csv").write_text(f"file,label\n{rows}")
    run("pack", tmp_path / "table.csv", tmp_path / "a.lmdb")

    assert np.array_equal(PIXELS[2], np.asarray(FastDataset(tmp_path / "a.lmdb")[2][0]))
