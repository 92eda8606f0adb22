"""Values that are their own bytes: arrays of fixed dtype and shape, copied unchanged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Job, RowWork, ThreadPool
from fastio.codec.codec import Geometry
from fastio.codec.headers import Headers
from fastio.types.spans import Spans

__all__ = ["RawCodec"]


class RawCodec:
    """Copies bytes into rows; also used for plain ``bytes`` fields that fill a row exactly."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the array's bytes in C order, little endian."""
        return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()

    def probe(self, spans: Spans) -> Headers:
        """All are OK and of unknown size, for raw bytes have no header."""
        return Headers.unknown(len(spans))

    def rows(self, spans: Spans, *, verify: bool, geometry: Geometry | None = None) -> RowWork:
        """Return what ``decode`` does to these values, for batches that native code makes of parts of them."""
        if geometry is None:
            return _native.plain_rows(spans, verify=verify, is_encoded=False)
        return _native.transformed_rows(
            spans,
            geometry.plan,
            verify=verify,
            fast=False,
            stored=geometry.stored,
            **geometry.options,
        )

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
        """Copy value i into ``out[i]``, of any dtype; one of another size than the row is BAD_SHAPE."""
        if not out.flags.c_contiguous:
            raise ValueError(f"out must be C contiguous, got strides {out.strides} for shape {out.shape}")
        if geometry is not None:
            return self._transform(spans, out, status, pool=pool, verify=verify, geometry=geometry)
        rows = out.reshape(len(out), math.prod(out.shape[1:])).view(np.uint8)
        return _native.gather(spans, rows, status, pool, verify=verify)

    def _transform(
        self,
        spans: Spans,
        out: NDArray[np.uint8],
        status: NDArray[np.int32],
        *,
        pool: ThreadPool | None,
        verify: bool,
        geometry: Geometry,
    ) -> Job:
        """Transform rows of pixels, uint8 ``(H, W, C)`` with the size that the geometry names, into ``out``."""
        if geometry.stored is None:
            raise ValueError("raw pictures have no header: the geometry must name their height and width")
        return _native.gather_transformed(
            spans,
            geometry.plan,
            out,
            status,
            pool,
            verify=verify,
            height=geometry.stored[0],
            width=geometry.stored[1],
            **geometry.options,
        )
