"""Text as UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Job, ThreadPool
from fastio.codec.codec import Geometry
from fastio.codec.headers import Headers
from fastio.errors import SchemaError
from fastio.types.spans import Spans

__all__ = ["TextCodec"]


class TextCodec:
    """Copies UTF-8 bytes unchanged, for samples of equal length in bytes."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the bytes themselves. Raises SchemaError if they are not UTF-8."""
        if value.ndim != 1 or value.dtype != np.uint8:
            raise SchemaError(f"text is '|u1' of one dimension, got {value.dtype.str!r} {value.shape}")
        data = value.tobytes()
        try:
            data.decode()
        except UnicodeDecodeError as exc:
            raise SchemaError(f"text is UTF-8, but byte {exc.start} is 0x{data[exc.start]:02x}: {exc.reason}") from exc
        return data

    def probe(self, spans: Spans) -> Headers:
        """All are OK and of unknown size, for text has no header."""
        return Headers.unknown(len(spans))

    def decode(
        self,
        spans: Spans,
        out: NDArray[np.uint8],
        status: NDArray[np.int32],
        *,
        pool: ThreadPool | None = None,
        verify: bool = True,
        geometry: Geometry | None = None,
    ) -> Job:
        """Copy the bytes of sample i into ``out[i]``; a size other than the row's is BAD_SHAPE."""
        if geometry is not None:
            raise ValueError("text has no geometry")
        return _native.gather(spans, out, status, pool, verify=verify)
