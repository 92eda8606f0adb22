"""Token ids: uint16 or uint32, any number per sample."""

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

__all__ = ["TokensCodec"]


class TokensCodec:
    """Copies ids as stored, for samples of equal length; batches of several lengths are laid out elsewhere."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the ids' bytes, little endian, in the width that they have."""
        if value.ndim != 1 or value.dtype.str not in ("<u2", "<u4"):
            raise SchemaError(f"token ids are '<u2' or '<u4' of one dimension, got {value.dtype.str!r} {value.shape}")
        return value.tobytes()

    def probe(self, spans: Spans) -> Headers:
        """All are OK and of unknown size, for ids have no header."""
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
        """Copy the ids of sample i into ``out[i]``, in the stored dtype; a length other than the row's is BAD_SHAPE."""
        if geometry is not None:
            raise ValueError("token ids have no geometry")
        rows = out.reshape(len(out), -1).view(np.uint8) if len(out) else np.empty((0, 0), np.uint8)
        return _native.gather(spans, rows, status, pool, verify=verify)
