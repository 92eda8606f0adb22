"""Which column a user means: one of a title, or what is below it in JSON or in structs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

__all__ = ["alike", "column_path", "nearest"]

_SIDES = ("width", "height")


def alike(name: str, titles: Sequence[str]) -> list[int]:
    """Return the positions of the titles that are spelled like ``name``; without any, of those that differ in case."""
    exact = [i for i, title in enumerate(titles) if title == name]
    return exact or [i for i, title in enumerate(titles) if title.lower() == name.lower()]


def nearest(name: str, titles: Collection[str]) -> str:
    """Return what to say of a column that is not there: the nearest one, "" if none is near."""
    if name in _SIDES:
        return (
            "; sizes of pictures are not known before these are packed: FastDataset(path).where('width >= 400') takes "
            "a part of a store"
        )
    near = get_close_matches(name, titles, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def column_path(where: str, titles: Collection[str]) -> tuple[str, ...] | None:
    """
    Return the title that ``where`` means, or a title followed by the names below it; None if there is no such title.

    The exact spelling comes first; then case is ignored, where that leaves one title.

    >>> column_path("objects.bbox", ["image", "objects"]), column_path("text", ["Text", "label"])
    (('objects', 'bbox'), ('Text',))
    """
    if where in titles:
        return (where,)
    listed, parts = list(titles), where.split(".")
    starts = [(".".join(parts[:count]), parts[count:]) for count in range(len(parts), 0, -1)]
    for is_exact in (True, False):
        for start, below in starts:
            found = alike(start, listed)
            if len(found) == 1 and (not is_exact or listed[found[0]] == start):
                return (listed[found[0]], *below)
    return None
