"""Spans brought into memory piece by piece, for those who pass over many of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.byte_source import StoreFiles
from fastio.types.spans import Spans

__all__ = ["fetch_pieces"]

_PIECE_BYTES = 64 << 20


def fetch_pieces(
    files: StoreFiles, spans: Spans, *, piece_bytes: int = _PIECE_BYTES
) -> Iterator[tuple[slice, Spans, NDArray[np.int32] | None]]:
    """
    All spans in order, at most ``piece_bytes`` at a time (or one larger span), where the files have to be copied.

    Yields the positions of each piece, its spans over memory and their status, as ``Fetched.wait`` returns them.
    """
    pieces = np.zeros(1, np.int64) if files.in_place else np.cumsum(spans.sizes) // piece_bytes
    cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
    for start, stop in pairwise(cuts):
        yield slice(start, stop), *files.fetch(spans.part(start, stop)).wait()
