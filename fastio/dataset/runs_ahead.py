"""Asks for the samples of contiguous runs before they are read, from files that no page cache keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fastio.store.files import Nearing
from fastio.store.files.together import joined_spans
from fastio.store.sample_store import SampleStore
from fastio.types.spans import Spans

__all__ = ["chunks_ahead"]

_UNIT_BYTES = 4 << 20  # of neighbouring samples that are asked for together
_LEAST_UNITS = 2  # that are asked for at any time: one is on its way while another is read


@dataclass(frozen=True, slots=True)
class _RunAhead:
    """Neighbouring chunks whose bytes were asked for together, and are held while ``handle`` lives."""

    chunks: list[range]
    handle: Nearing
    nbytes: int


def chunks_ahead(store: SampleStore, fields: Sequence[str], chunks: Iterator[range], *, share: int) -> Generator[range]:
    """
    Yield the chunks, ranges of samples; before each one, these fields of it and of what follows are asked for.

    Neighbouring chunks are asked for together, about 4 MiB at once, and their bytes are held until all of them were
    taken. ``share`` readers divide the bytes that these files may be asked for ahead. Files that the page cache keeps
    are left to the kernel.
    """
    if not store.files.holds or not fields:
        yield from chunks
        return
    most_bytes = store.files.ahead_bytes // share
    units: deque[_RunAhead] = deque()
    try:
        while True:
            while len(units) < _LEAST_UNITS or sum(unit.nbytes for unit in units) < most_bytes:
                unit = _next_unit(store, fields, chunks)
                if unit is None:
                    break
                units.append(unit)
            if not units:
                return
            yield from units[0].chunks
            units.popleft()
    finally:
        for unit in units:
            unit.handle.cancel()


def _next_unit(store: SampleStore, fields: Sequence[str], chunks: Iterator[range]) -> _RunAhead | None:
    """Take chunks until they have enough bytes, and ask for these; None at the end."""
    taken: list[range] = []
    every: list[Spans] = []
    nbytes = 0
    while nbytes < _UNIT_BYTES and (chunk := next(chunks, None)) is not None:
        samples = np.arange(chunk.start, chunk.stop)
        for name in fields:
            every.append(store.spans(name, samples, checksums=False))
            nbytes += int(every[-1].sizes.sum())
        taken.append(chunk)
    return _RunAhead(taken, store.files.read_ahead(joined_spans(every)), nbytes) if taken else None
