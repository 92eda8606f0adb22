"""Finds the folder of the images that a COCO JSON names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fastio.errors import SourceError

__all__ = ["find_root"]

_LOOKED_AT = 100  # names that a folder must hold


def find_root(path: str, root: str | None, names: Sequence[Any]) -> str:
    """
    Return the folder that names are relative to: ``root``, or the one that holds the first images.

    That may be the folder of the JSON, one in it, or one beside it or in ``images`` beside it; the nearest counts.
    Raises SourceError if none of them holds any, or if several equally near ones do.
    """
    if root is not None:
        return os.path.realpath(root)
    here = Path(os.path.realpath(path)).parent
    some = [name for name in names if isinstance(name, str) and name and "\0" not in name and name[0] != "/"]
    del some[_LOOKED_AT:]
    roots: list[str] = []
    for folders in _candidates(here):
        counts = {os.path.realpath(folder): sum(_is_file(folder, name) for name in some) for folder in folders}
        most = max(counts.values(), default=0)
        roots = [folder for folder, count in counts.items() if count == most > 0]
        if roots:
            break
    if len(roots) == 1:
        return roots[0]
    both = f"{' and '.join(map(repr, roots))} hold them equally"
    found = both if roots else f"no folder in or beside {str(here)!r} does"
    first = repr(some[0]) if some else "none"
    raise SourceError(f"{path}: which folder holds its images (the first is {first})? {found}: name it with --root DIR")


def _candidates(here: Path) -> Iterator[list[Path]]:
    """The folder itself, those in it, and those beside it and in ``images`` beside it: the nearest first."""
    yield [here]
    yield _folders_in(here)
    yield [*_folders_in(here.parent), *_folders_in(here.parent / "images")]


def _folders_in(above: Path) -> list[Path]:
    try:
        return sorted(each for each in above.iterdir() if each.is_dir())
    except OSError:  # not there, or not to be listed: nothing can be in it
        return []


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # too long, half a character
        return False
