"""The index of the examples is true: every file is listed and run by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.running import EXAMPLES, commands

NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))
README = (EXAMPLES / "README.md").read_text()
ROW = re.compile(r"^\| \[`(\w+\.py)`\]\(\1\) \| .+ \| `(.+)` \| (.*?) ?\|$", re.MULTILINE)
ROWS = ROW.findall(README)
# What an example needs besides what fastio always installs, by the package that it imports.
NEEDS = {
    "jax": "jax",
    "keras": "keras",
    "obstore": "`fastio[remote]`",
    "pyarrow": "`fastio[text]`",
    "pytorch_lightning": "`fastio[lightning]`",
    "tokenizers": "`fastio[text]`",
    "torchvision": "torchvision",
    "transformers": "`fastio[transformers]`",
    "trl": "trl",
}
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_index.py")


def test_every_example_is_listed_once() -> None:
    """The rows of the README are the files of the folder."""
    assert NAMES == sorted(name for name, _, _ in ROWS)


@pytest.mark.parametrize(("name", "command", "needs"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_is_true(name: str, command: str, needs: str) -> None:
    """The docstring has its command; what it imports or packs needs that."""
    script = (EXAMPLES / name).read_text()
    imported = set(re.findall(r"^(?:from|import) (\w+)", script, re.MULTILINE))
    imported |= {"pyarrow"} if ".where(" in script else set()
    imported |= {"obstore"} if "s3://" in command else set()
    assert needs == ", ".join(NEEDS[package] for package in sorted(imported & NEEDS.keys()))
    assert any(command.split() == words[: len(command.split())] for words in commands(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_run(name: str) -> None:
    """A test beside this one names the file."""
    assert f'"{name}"' in TESTS
