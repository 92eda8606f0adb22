"""The maps are true: a README names every file of its folder and nothing else; so does "where do I add"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import LEVEL

TOP = Path(__file__).parent.parent
FASTIO = TOP / "fastio"
NATIVE = TOP / "native"
MAP = (FASTIO / "README.md").read_text()
SUFFIXES = (".py", ".html", ".css", ".js", ".pyi")
ROOMS = sorted(
    path.parent
    for root in ("fastio", "converters", "benchmarks")
    for path in (TOP / root).rglob("README.md")
    if not any(part.startswith(".") for part in path.relative_to(TOP).parts)  # environments and data of benchmarks
)


def named(text: str) -> set[str]:
    """Every `path` in a text that looks like one of a file or of a folder."""
    return set(re.findall(rf"`((?:\.\./)?[\w/]+(?:{'|'.join(map(re.escape, SUFFIXES))}|/))`", text))


def files_of(room: Path) -> Iterator[Path]:
    """The files that a folder's README speaks of: its own, and those of folders within that have none."""
    for path in sorted(room.iterdir()):
        if path.is_file() and path.suffix in SUFFIXES and path.name != "__init__.py":
            yield path
        elif path.is_dir() and not path.name.startswith(("__pycache__", ".")) and not (path / "README.md").exists():
            yield from files_of(path)


def is_named(path: str, names: set[str]) -> bool:
    """Whether a file is named by its path, or is one of a folder that stands for all that is in it."""
    return path in names or any(name.endswith("/") and path.startswith(name) for name in names - rooms_listed(names))


def rooms_listed(names: set[str]) -> set[str]:
    """Folders whose files are named one by one."""
    return {
        room for room in names if room.endswith("/") and any(name != room and name.startswith(room) for name in names)
    }


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(TOP)))
def test_a_readme_names_every_file_of_its_folder(room: Path) -> None:
    """A new file gets its line in the README of its folder."""
    names = named((room / "README.md").read_text())
    missing = [path for path in (str(file.relative_to(room)) for file in files_of(room)) if not is_named(path, names)]

    assert missing == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(TOP)))
def test_a_readme_names_only_what_is_there(room: Path) -> None:
    """A file that moves or goes takes its line with it."""
    names = named((room / "README.md").read_text())
    gone = [name for name in names if not any((root / name).exists() for root in (room, FASTIO, TOP))]

    assert gone == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(TOP)))
def test_a_line_names_what_its_files_define(room: Path) -> None:
    """A class that is renamed is renamed in the README too: `Names` in a line occur in the files of that line."""
    wrong = []
    for line in (room / "README.md").read_text().splitlines():
        cells = line.split(" | ")
        files = [room / name for name in re.findall(r"`([\w/]+\.py)`", line)]
        if not line.startswith("| `") or not files:
            continue
        text = "\n".join(file.read_text() for file in files)
        names = re.findall(r"`((?:[A-Z][a-z]+){2,}|[A-Z][A-Z_]+)`", " | ".join(cells[1:]))
        wrong += [f"{line[:40]}: {name}" for name in names if not re.search(rf"\b{name}\b", text)]

    assert wrong == []


def test_the_native_map_names_every_file() -> None:
    """A header and its source share a path in native/README.md; `simd/` stands for what is in it."""
    names = {
        name.removeprefix("src/").removesuffix(".cpp")
        for name in re.findall(r"`([\w/.]+)`", NATIVE.joinpath("README.md").read_text())
    }
    rooms = {
        str(file.relative_to(NATIVE / "src").with_suffix("")) for file in NATIVE.glob("src/**/*.*") if file.is_file()
    }

    assert [] == sorted(room for room in rooms - names if not room.startswith("simd/"))


def test_the_native_map_names_only_what_is_there() -> None:
    """A file that moves or goes takes its name with it."""
    folders = [path.name for path in NATIVE.glob("src/*/")]
    names = re.findall(rf"`((?:{'|'.join(folders)})/\w+)`", NATIVE.joinpath("README.md").read_text())

    assert [] == [name for name in names if not list(NATIVE.glob(f"src/{name}.*"))]


def test_every_folder_of_the_package_has_a_place() -> None:
    """The map links each folder's README; a folder without one is described where it lies."""
    folders = [path for path in FASTIO.iterdir() if path.is_dir() and any(path.glob("*.py"))]

    assert [] == [path.name for path in folders if f"({path.name}/README.md)" not in MAP]


def test_the_map_has_the_layers_in_their_order() -> None:
    """From top to bottom, as tests/test_layers.py has them."""
    rows = MAP.split("| layer | folder | subject |")[1].split("\n\n")[0]
    levels = [LEVEL[name] for name in re.findall(r"\| \[(\w+)/?\]\(", rows) if name != "native"]

    assert sorted(levels) == levels
    assert len(levels) >= len(LEVEL) - len({"__main__", "errors", "lazy", "_native"})


ADD = MAP.split("## Where do I add")[1].split("\n\n| what")[1].split("\n\n")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ADD.splitlines()[2:]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_where_something_is_added(row: list[str]) -> None:
    """The folder of the new file, the registry's file with the registry's name in it, and the tests are there."""
    _, new, line, tested = row
    for folder in re.findall(r"`([\w/]+)/<name>\.py`", new):
        assert any((root / folder).is_dir() for root in (FASTIO, TOP)), folder
    for file, name in re.findall(r"`([\w/]+\.py)`: `(\w+)`", line):
        (path,) = [root / file for root in (FASTIO, TOP) if (root / file).exists()]
        assert re.search(rf"\b{name}\b", path.read_text()), f"{file} has no {name}"
    for path in re.findall(r"`(tests/[\w/.]+)`", tested):
        assert (TOP / path).exists(), path
