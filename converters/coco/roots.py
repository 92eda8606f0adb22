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

    That may be the folder of the JSON, ``images`` in it, or any folder in it, beside it, or in ``images`` beside it.
    Raises SourceError if none of them does, or several do.
    """
    if root is not None:
        return os.path.realpath(root)
    here = Path(os.path.realpath(path)).parent
    some = [name for name in names if isinstance(name, str) and name and "\0" not in name and name[0] != "/"][
        :_LOOKED_AT
    ]
    best: dict[str, int] = {}
    for folder in _candidates(here):
        count = sum(_is_file(folder, name) for name in some)
        if count:
            best[os.path.realpath(folder)] = count
    most = max(best.values(), default=0)
    roots = [folder for folder, count in best.items() if count == most]
    if len(roots) == 1:
        return roots[0]
    found = (
        f"{' and '.join(map(repr, roots))} hold them equally" if roots else f"no folder in or beside {str(here)!r} does"
    )
    first = repr(some[0]) if some else "none"
    raise SourceError(f"{path}: which folder holds its images (the first is {first})? {found}: name it with --root DIR")


def _candidates(here: Path) -> Iterator[Path]:
    """The folder itself, those in it, beside it, and in ``images`` beside it."""
    yield here
    for above in (here, here.parent, here.parent / "images"):
        try:
            yield from sorted(each for each in above.iterdir() if each.is_dir())
        except OSError:
            continue  # not there, or not to be listed: nothing can be in it


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # too long, half a character
        return False
