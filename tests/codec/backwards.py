"""A codec that somebody adds: this file, and its row in TRAITS (see test_new_codec.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Job, ThreadPool
from fastio.codec.codec import Geometry
from fastio.codec.headers import Headers
from fastio.types.spans import Spans
from fastio.types.traits import Traits

__all__ = ["ROW", "BackwardsCodec"]

ROW = Traits(title="backwards {array}", codec="tests.codec.backwards:BackwardsCodec", has_fixed_shape=True)


class BackwardsCodec:
    """Arrays of fixed shape, whose bytes are stored last first."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """The array's bytes, last first."""
        return value.tobytes()[::-1]

    def probe(self, spans: Spans) -> Headers:
        """No value has a header."""
        return Headers.unknown(len(spans))

    def decode(
        self,
        spans: Spans,
        out: NDArray[Any],
        status: NDArray[np.int32],
        *,
        pool: ThreadPool | None = None,
        verify: bool = True,
        geometry: Geometry | None = None,
    ) -> Job:
        """Gather the bytes natively, and turn them around here, once they are there."""
        assert geometry is None
        rows = out.view(np.uint8).reshape(len(out), -1) if len(out) else np.empty((0, 0), np.uint8)
        job = _native.gather(spans, rows, status, pool, verify=verify)
        job.wait()
        rows[:] = rows[:, ::-1].copy()
        return job
