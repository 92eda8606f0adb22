"""Writes the table of fastio/guide/licences.md: which packages fastio brings along, and under which licences.

``make licences`` runs it in the environment that has all extras. pip-licenses says what each package declares; which
packages belong to fastio, and through what, follows from their requirements.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "fastio/guide/licences.md"
HEAD = "| package | version | licence | comes with |\n| --- | --- | --- | --- |\n"
OURS = ("test", "bench", "lint", "docs", "release")  # extras for those who work on fastio, who are not users of it


def main() -> None:
    """Write the rows of the table below its head, in place of those that are there."""
    comes_with = packages()
    known = {canonicalize_name(entry["Name"]): entry for entry in _declared(comes_with)}
    rows = [_row(known[name], extras) for name, extras in sorted(comes_with.items()) if name in known]
    before, _, after = PAGE.read_text(encoding="utf-8").partition(HEAD)
    while after.startswith("|"):  # the rows that are there
        _, _, after = after.partition("\n")
    PAGE.write_text(f"{before}{HEAD}{''.join(rows)}{after}", encoding="utf-8")
    print(f"{PAGE}: {len(rows)} packages; not installed here: {', '.join(sorted(comes_with.keys() - known)) or 'none'}")


def _declared(names: Iterable[str]) -> list[dict[str, str]]:
    """Return Name, Version and License of those of these packages that are installed."""
    options = ["--from=mixed", "--with-system", "--format=json", "--packages", *names]
    answer = subprocess.run([sys.executable, "-m", "piplicenses", *options], check=True, capture_output=True, text=True)
    entries: list[dict[str, str]] = json.loads(answer.stdout)
    return entries


def packages() -> dict[str, list[str]]:
    """Return the names of all packages that fastio needs, directly or not, and by which extras; "fastio" is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"fastio": project["dependencies"], **project["optional-dependencies"]}
    comes_with: dict[str, list[str]] = {}
    for extra, wanted in extras.items():
        if extra not in OURS:
            for name in _needed(wanted):
                if "fastio" not in comes_with.setdefault(name, []):
                    comes_with[name].append(extra)
    return comes_with


def _needed(wanted: Iterable[str]) -> set[str]:
    """Return the names of these requirements and of all that they need in turn."""
    needed: set[tuple[str, str]] = set()
    todo = [Requirement(line) for line in wanted]
    while todo:
        requirement = todo.pop()
        for extra in (*requirement.extras, ""):
            pair = (canonicalize_name(requirement.name), extra)
            if pair in needed or not _holds(requirement):
                continue
            needed.add(pair)
            todo += [line for line in _requirements(requirement.name) if _holds(line, extra)]
    return {name for name, _ in needed} - {"fastio"}


def _requirements(name: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in requires(name) or ()]
    except PackageNotFoundError:
        return []


def _holds(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _row(entry: dict[str, str], extras: list[str]) -> str:
    """Return a line of the table; of a licence that is declared as a whole text, its first line."""
    licence = re.sub(r"\s+", " ", entry["License"].strip().splitlines()[0]).replace("|", "/")
    return f"| {entry['Name']} | {entry['Version']} | {licence} | {', '.join(extras)} |\n"


if __name__ == "__main__":
    main()
