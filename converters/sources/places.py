"""Names many lines and documents of files in few characters: ``{"corpus.txt": "3, 5-8, 12-400/2"}``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Places", "entries", "joined_places", "places_of", "runs_text"]

Places = Mapping[str, str]  # by file, the numbers of its lines or rows; "" names a file as a whole

_NUMBERED = re.compile(r"(.*):(\d+)\Z", re.DOTALL)
_SHORTEST = 3  # numbers of equal distance that are written as a run, unless they are neighbours


def runs_text(numbers: ArrayLike) -> str:
    """
    Return ascending numbers as runs.

    >>> runs_text([3, 5, 6, 7, 8, 12, 14, 16, 18, 40])
    '3, 5-8, 12-18/2, 40'
    """
    every = np.asarray(numbers, np.int64)
    steps = np.diff(every)
    changes = np.flatnonzero(np.diff(steps)) + 1
    stops: NDArray[np.int64] = np.append(changes, len(steps))  # of the runs of equal steps
    parts, first, run = [], 0, 0
    while first < len(every):
        while run < len(stops) and stops[run] <= first:
            run += 1
        last = int(stops[run]) if run < len(stops) else first
        step = int(steps[first]) if last > first else 0
        if step == 1:
            parts.append(f"{every[first]}-{every[last]}")
        elif last - first + 1 >= _SHORTEST:
            parts.append(f"{every[first]}-{every[last]}/{step}")
        else:
            parts.append(str(every[first]))
            last = first
        first = last + 1
    return ", ".join(parts)


def places_of(keys: Sequence[str]) -> dict[str, str]:
    """
    Return the documents of these keys: rows and lines by their file, others by themselves.

    >>> places_of(["a.jsonl:3", "a.jsonl:4", "notes/b.txt"])
    {'a.jsonl': '3-4', 'notes/b.txt': ''}
    """
    found = (_NUMBERED.match(key) for key in keys)
    named = [(key, None) if each is None else (each[1], int(each[2])) for key, each in zip(keys, found, strict=True)]
    groups = groupby(named, key=lambda each: each[0])
    return joined_places(
        {name: runs_text([number for _, number in group if number is not None])} for name, group in groups
    )


def joined_places(parts: Iterable[Places]) -> dict[str, str]:
    """Return places that come one after the other in the same files, or in others, as one."""
    joined: dict[str, list[str]] = {}
    for part in parts:
        for name, numbers in part.items():
            joined.setdefault(name, []).append(numbers)
    return {name: ", ".join(filter(None, numbers)) for name, numbers in joined.items()}


def entries(places: Places, what: str) -> list[dict[str, str]]:
    """
    Return places as a store's ledger lists them.

    >>> entries({"a.txt": "3, 5-8"}, "blank lines")
    [{'key': 'a.txt', 'problem': 'blank lines: 3, 5-8'}]
    """
    return [{"key": name, "problem": f"{what}: {numbers}" if numbers else what} for name, numbers in places.items()]
