"""PackReport: what a run of ``pack`` did, as its caller gets it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastio.converters.source import Problem

__all__ = ["PackReport", "reasons"]


@dataclass(frozen=True, slots=True)
class PackReport:
    """
    What is packed now, and what this run did for it. ``found`` is always the sum of ``packed``, skipped and left out.

    With ``part=``, all numbers are those of the part's shards, and ``missing`` says which numbers of the whole set are
    still to be packed, here or by other parts; the set exists as soon as none is.
    """

    path: str
    format: str
    found: int
    packed: int
    skipped: Sequence[Problem]
    left_out: Sequence[Problem]  # files that are no samples, and what the user's filters leave out
    payload_bytes: int  # the samples' bytes that went into the store
    source_bytes: int  # the same samples' bytes in the source
    packing: Mapping[str, Any]  # what was done to the pictures, as the store records it; empty: nothing
    source_disk_bytes: int  # what the files take on disk, in blocks
    store_bytes: int
    shards: int
    files_opened: int
    seconds: float
    kept_shards: int = 0  # of these shards, those that were whole already
    kept_samples: int = 0
    missing: Sequence[int] = ()
    left_out_columns: Sequence[str] = ()  # of the source, of which no field was made

    @property
    def overhead_bytes(self) -> float:
        """Bytes per sample that the store takes beyond the sample itself."""
        return (self.store_bytes - self.payload_bytes) / max(self.packed, 1)


def reasons(problems: Iterable[Problem]) -> dict[str, int]:
    """
    Return how many problems there are of each kind, the most frequent first.

    A kind is the beginning of a sentence, with N for numbers.

    >>> reasons([Problem("a", "has 12 tokens, more than 8"), Problem("b", "has 1,024 tokens, more than 8")])
    {'has N tokens': 2}
    """
    kinds = (
        re.split(r"[,:;(]", re.sub(r"(?<![\w.-])\d(?:[\d,.]*\d)?", "N", each.problem))[0].strip() for each in problems
    )
    return dict(Counter(kinds).most_common())
