"""The map is true: its layers are those of the code, and what "where do I add" names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import LEVEL

TOP = Path(__file__).parent.parent
FASTIO = TOP / "fastio"
MAP = (FASTIO / "README.md").read_text()


def test_every_folder_of_the_package_has_a_place() -> None:
    """The map links each folder's README; a folder without one is described where it lies."""
    folders = [path for path in FASTIO.iterdir() if path.is_dir() and any(path.glob("*.py"))]

    assert [] == [path.name for path in folders if f"({path.name}/README.md)" not in MAP]


def test_the_map_has_the_layers_in_their_order() -> None:
    """From top to bottom, as tests/test_layers.py has them."""
    rows = MAP.split("| layer | folder | subject |")[1].split("\n\n")[0]
    levels = [LEVEL[name.replace("/", ".")] for name in re.findall(r"\| \[([\w/]+?)/?\]\(", rows) if name != "native"]

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
