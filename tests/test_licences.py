"""The guide of licences names every package that fastio asks for, in the versions that it is tested with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TOP = Path(__file__).parent.parent
NOT_OF_USERS = {"test", "bench", "lint", "docs", "release"}
PAGE = (TOP / "fastio" / "guide" / "licences.md").read_text(encoding="utf-8")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _rows() -> dict[str, str]:
    """Version by package, as the table has them."""
    table = PAGE.split("| package | version |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert all(len(row) == 4 and all(row) for row in cells)
    return {_plain(name): version for name, version, _, _ in cells}


def test_every_package_that_is_asked_for_is_listed() -> None:
    """A new dependency gets its row (make licences), or its place in the sentence below the table."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name not in NOT_OF_USERS]
    lines = [line for lines in (project["dependencies"], *extras) for line in lines]
    asked = {_plain(re.split(r"[\[<>=!~ ;]", line)[0]) for line in lines}

    below = set(re.findall(r"`([\w-]+)`", PAGE.split("Not in the table")[1].split("\n\n")[0]))

    assert sorted(asked - below - {"fastio"} - _rows().keys()) == []


def test_versions_are_those_that_are_tested() -> None:
    """A version that is raised in constraints.txt is looked at again, since licences change: make licences."""
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = {_plain(name): version for name, _, version in (line.partition("==") for line in lines if "==" in line)}
    rows = _rows()

    assert {name: tested[name] for name in rows.keys() & tested} == {
        name: version.partition("+")[0] for name, version in rows.items() if name in tested
    }
