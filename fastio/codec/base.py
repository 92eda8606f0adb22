"""The protocol of a codec: a batch of spans in, one array out, a status for every sample."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio._native import Job, ThreadPool
from fastio.spans import Spans

__all__ = ["Codec"]


class Codec(Protocol):
    """
    Bytes to arrays, a batch a call.

    Bad bytes become a status (see ``fastio.codec.describe_status``), never an exception in
    a thread and never a silent garbage row.
    """

    name: str  # as in Field.codec

    def encode(self, value: NDArray[Any]) -> bytes:
        """One value's bytes."""
        ...

    def probe(self, spans: Spans) -> NDArray[np.int32]:
        """``(n, 5)`` status, height, width, channels, kind, from headers only."""
        ...

    def decode(
        self,
        spans: Spans,
        out: NDArray[np.uint8],
        status: NDArray[np.int32],
        *,
        pool: ThreadPool | None = None,
        verify: bool = True,
    ) -> Job:
        """
        Decode value i into ``out[i]``; ``status[i]`` says how it went.

        Returns at once with the job under way, or, without a pool, when all is done. Rows
        whose status is not OK are unspecified. ``verify`` compares each value with its
        checksum first, where there is one.
        """
        ...
