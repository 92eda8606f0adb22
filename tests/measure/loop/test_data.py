"""What `bench` opens: stores, folders of files, functions of the user; and the halves measured of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastio.errors import FastioError, SampleError, SchemaError, SourceError
from fastio.measure.loop.data import DataOptions, FolderDataset, open_data, open_step
from fastio.measure.loop.halves import measure_halves
from fastio.measure.settings.decode import sample_pictures
from fastio.measure.settings.points import GridData
from tests.conftest import encode, pictures

SCRIPT = """
import torch
batches = [(torch.ones(4, 2), torch.zeros(4))] * 3

def loader():
    return batches

def pair():
    return batches, seen.append

def generator():
    return iter(batches)

def nothing():
    return []

def number():
    return 3

def two():
    return batches, 3

seen = []
step = lambda: seen.append
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A script of the user's in the working directory, under a name of its own."""
    name = f"user_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two class folders with three PNGs each, and a file that is no picture."""
    for number, pixels in enumerate(pictures(6, (10, 12, 3))):
        path = tmp_path / "pngs" / "ab"[number % 2] / f"{number}.PNG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels))
    (tmp_path / "pngs" / "readme.txt").touch()
    return tmp_path / "pngs"


def test_a_store(png_store: Path) -> None:
    """A store becomes a FastLoader, with its size; closing closes it."""
    with open_data(str(png_store), DataOptions(batch_size=20, threads=1, shuffle=True)) as data:
        sizes = [len(images) for images, _ in data.loader]
        assert (data.kind, data.samples, data.step) == ("store", 50, None)
        assert data.size_bytes is not None
        assert data.size_bytes >= png_store.stat().st_size
    assert sizes == [20, 20, 10]
    with pytest.raises(ValueError, match="closed"):
        iter(data.loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_folder(folder: Path, workers: int) -> None:
    """Files are read by Pillow in a DataLoader; classes are folders; other files are passed over."""
    with open_data(str(folder), DataOptions(batch_size=4, workers=workers)) as data:
        batches = list(data.loader)
    expected = pictures(6, (10, 12, 3))

    assert (data.kind, data.samples) == ("folder", 6)
    assert data.size_bytes == sum(path.stat().st_size for path in folder.rglob("*.PNG"))
    assert [label for _, labels in batches for label in labels.tolist()] == [0, 0, 0, 1, 1, 1]
    assert torch.equal(batches[0][0][1].permute(1, 2, 0), torch.from_numpy(expected[2]))


def test_a_folder_of_shards_is_a_store(tmp_path: Path, png_stores: dict[str, Path]) -> None:
    """Tar shards in a folder are opened as the store that they are, by bench, tune and decode."""
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "a.tar").symlink_to(png_stores["tar"])
    with open_data(str(folder), DataOptions(batch_size=20, threads=1)) as data:
        assert [20, 20, 10] == [len(images) for images, _ in data.loader]
        assert "store" == data.kind

    assert "store" == GridData(str(folder), DataOptions()).kind
    assert 5 == len(sample_pictures(str(folder), 5))


def test_a_crop_is_that_of_a_store(folder: Path) -> None:
    """With --crop both kinds of data give the same shape."""
    with open_data(str(folder), DataOptions(workers=0, crop=6)) as data:
        images, _ = next(iter(data.loader))

    assert images.shape == (6, 3, 6, 6)


def test_different_sizes_are_named(folder: Path) -> None:
    """The error says which sizes met, and what to do."""
    (folder / "a" / "9.png").write_bytes(encode(pictures(1, (5, 7, 3))[0]))
    with (
        open_data(str(folder), DataOptions(workers=0)) as data,
        pytest.raises(SchemaError, match=r"12x10 and 7x5.*--crop"),
    ):
        next(iter(data.loader))


def test_a_broken_file_is_named(folder: Path) -> None:
    """A file that Pillow cannot read is an error with its path."""
    (folder / "a" / "0.PNG").write_bytes(b"no picture")
    with pytest.raises(SampleError, match=r"a/0\.PNG"):
        FolderDataset(folder)[0]


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    """Nothing to read is an error at once."""
    with pytest.raises(SourceError, match="no picture files"):
        FolderDataset(tmp_path)


def test_a_function(script: str) -> None:
    """module:function and script.py:function return a loader, or a loader and a step."""
    assert open_data(f"{script}:loader", DataOptions()).step is None
    data = open_data(f"{script}.py:pair", DataOptions())

    assert data.kind == "function"
    assert data.step is not None
    assert len(list(data.loader)) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":number", "returned int, expected a loader"),
        (":two", "list, int"),
        (":nix", "no function 'nix'"),
        (".py:nix", "no function 'nix'"),
        ("_nowhere:f", "no module"),
        ("_nowhere.py:f", "no such script"),
        (".py", r"is a script: name its function .*, such as .*\.py:loader_and_step"),
    ],
)
def test_a_function_that_is_none(script: str, name: str, message: str) -> None:
    """What cannot be used is said in one line."""
    with pytest.raises(FastioError, match=message):
        open_data(script + name, DataOptions())


def test_an_import_that_fails_inside_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that the user's module misses is not taken for the user's module."""
    (tmp_path / "user_missing.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        open_data("user_missing:f", DataOptions())


@pytest.mark.parametrize(
    ("kind", "options", "flag"),
    [
        ("store", DataOptions(workers=2), "--workers"),
        ("folder", DataOptions(threads=2), "--threads"),
        ("function", DataOptions(batch_size=2), "--batch-size"),
        ("function", DataOptions(crop=2), "--crop"),
        ("function", DataOptions(shuffle=True), "--shuffle"),
    ],
)
def test_an_option_without_effect_is_refused(
    kind: str, options: DataOptions, flag: str, png_stores: dict[str, Path], folder: Path
) -> None:
    """Nobody measures something else than was asked for."""
    names = {"store": str(png_stores["lmdb"]), "folder": str(folder), "function": "module:function"}
    with pytest.raises(FastioError, match=f"{flag} has no effect"):
        open_data(names[kind], options)


def test_a_step(script: str) -> None:
    """--step names a function that returns the step."""
    assert callable(open_step(f"{script}:step"))
    with pytest.raises(FastioError, match="takes a batch"):
        open_step(f"{script}:number")
    with pytest.raises(FastioError, match="expected MODULE"):
        open_step("nothing")


def test_halves(script: str) -> None:
    """Loading alone, training alone, both: each with batches, and a verdict on them."""
    data = open_data(f"{script}:pair", DataOptions())
    assert data.step is not None
    halves = measure_halves(data, data.step, seconds=0.02)

    assert halves.io.batches >= 1
    assert halves.training.samples == 4 * halves.training.steps > 0
    assert halves.loop.steps > 0
    assert len(halves.verdict.evidence) >= 2


def test_a_slow_step_is_counted_all_the_same(script: str) -> None:
    """One step may take longer than the whole measurement."""
    halves = measure_halves(open_data(f"{script}:loader", DataOptions()), lambda _: None, seconds=0.0)

    assert (halves.training.steps, halves.io.batches) == (1, 1)


@pytest.mark.parametrize(("function", "message"), [("generator", "starts over"), ("nothing", "is empty")])
def test_a_loader_that_gives_nothing(script: str, function: str, message: str) -> None:
    """A generator ends after one pass, and an empty loader has nothing to measure: neither is measured as zero."""
    with pytest.raises(FastioError, match=message):
        measure_halves(open_data(f"{script}:{function}", DataOptions()), lambda _: None, seconds=0.01)
