"""Reads the parts of a sample that lie in different places, such as files and a table, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastio import _native
from fastio.converters.listed import Indices, Read, Values

__all__ = ["read_together"]


def read_together(reads: Sequence[Read]) -> Read:
    """
    Return a ``Read`` that begins all of these at once and waits for each.

    Each brings fields of its own. A sample with problems in several of them has that of the first.
    """
    if len(reads) == 1:
        return reads[0]

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        waits = [read(indices, pool) for read in reads]

        def finish() -> Values:
            parts = [wait() for wait in waits]
            problems: dict[int, str] = {}
            for part in reversed(parts):
                problems |= part.problems
            return Values(
                {name: spans for part in parts for name, spans in part.spans.items()},
                problems,
                {name: column for part in parts for name, column in part.columns.items()},
            )

        return finish

    return begin
