"""Which names of a source's samples differ in their extension alone, so that a picture of another kind may take one."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import splitext

import numpy as np

from fastio.converters.source import Source

__all__ = ["shared_stems"]

_BLOCK = 1 << 16


def shared_stems(source: Source) -> Mapping[str, list[str]]:
    """
    Return the keys that are equal without their extensions, sorted, by what they have in common.

    Two passes over the keys, and 8 bytes of memory for each: a dictionary of ten million stems would take gigabytes.
    """
    count = len(source) - len(source.problems)
    blocks = [range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
    hashes = np.empty(count, np.int64)
    for block in blocks:
        hashes[block.start : block.stop] = [hash(splitext(key)[0]) for key in source.scanned(block).keys]
    values, counts = np.unique(hashes, return_counts=True)
    repeated = values[counts > 1]
    groups: dict[str, list[str]] = {}
    for block in blocks if len(repeated) else ():
        positions = np.flatnonzero(np.isin(hashes[block.start : block.stop], repeated)).tolist()
        keys = source.scanned(block).keys if positions else []
        for position in positions:
            groups.setdefault(splitext(keys[position])[0], []).append(keys[position])
    return {stem: sorted(keys) for stem, keys in groups.items() if len(keys) > 1}
