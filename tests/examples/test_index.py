"""The index of the examples is true: every file is listed, short, and run by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.running import EXAMPLES, commands

NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))
README = (EXAMPLES / "README.md").read_text()
ROWS = re.findall(r"^\| \[`(\w+\.py)`\]\(\1\) \| .+ \| `(.+)` \| (\d+) \|$", README, re.MULTILINE)
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_index.py")


def test_every_example_is_listed_once() -> None:
    """The rows of the README are the files of the folder."""
    assert NAMES == sorted(name for name, _, _ in ROWS)


@pytest.mark.parametrize(("name", "command", "lines"), ROWS, ids=[name for name, _, _ in ROWS])
def test_a_row_is_true(name: str, command: str, lines: str) -> None:
    """The file has as many lines as its row says, fewer than 80; its docstring has the row's command."""
    assert len((EXAMPLES / name).read_text().splitlines()) == int(lines) < 80
    assert any(command.split() == words[: len(command.split())] for words in commands(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_run(name: str) -> None:
    """A test beside this one names the file."""
    assert f'"{name}"' in TESTS
