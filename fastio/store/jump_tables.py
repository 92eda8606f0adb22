"""Notes where MCUs of JPEGs begin, so that decoders can start in the middle of a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.types.spans import Spans

__all__ = ["JUMP_SPACING", "begin_jump_tables"]

# MCUs between two that are noted. On 300 ImageNet photos tables with 4 take 2.3 % of the bytes, with 8 1.2 %, with 16
# 0.6 %.
JUMP_SPACING = 8


def begin_jump_tables(
    spans: Spans, pool: _native.ThreadPool | None = None
) -> Callable[[], tuple[Spans, NDArray[np.int32]]]:
    """
    Begin to read all codes of the JPEGs among ``spans`` whose ``intervals`` are not known.

    The result waits for it and returns the spans with jump tables as ``intervals``, and a status (n,) for each: that of
    a damaged JPEG, which has no table, or OK. Pictures that need no table or cannot have one (other kinds, progressive
    JPEGs, those with restart markers) have none.
    """
    known = np.zeros(len(spans), np.int64) if spans.intervals is None else spans.intervals.sizes
    rows = np.flatnonzero(known == 0)
    tables = _native.JumpTables(len(rows))
    job = _native.note_points(spans.at(rows), tables, pool, spacing=JUMP_SPACING)

    def finish() -> tuple[Spans, NDArray[np.int32]]:
        job.wait()
        words, counts, status = tables.take()
        all_status = np.zeros(len(spans), np.int32)
        all_status[rows] = status
        noted = Spans.joined(words.view(np.uint8), 4 * counts.astype(np.int64))
        if not len(words):
            return spans, all_status
        return replace(spans, intervals=_merged(spans.intervals, noted, rows)), all_status

    return finish


def _merged(known: Spans | None, noted: Spans, rows: NDArray[np.int64]) -> Spans:
    """Return the intervals that were known, and at ``rows``, where there were none, those that were noted."""
    if known is None:
        return noted
    values = [view.tobytes() for view in known.views()]
    for row, view in zip(rows.tolist(), noted.views(), strict=True):
        values[row] = view.tobytes()
    sizes = np.array([len(value) for value in values], np.int64)
    return Spans.joined(np.frombuffer(b"".join(values), np.uint8), sizes)
