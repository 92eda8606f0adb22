"""Encoded pictures: JPEG and PNG go to the native decoders, everything else is marked for Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import Job, RowWork, ThreadPool
from fastio.codec.codec import Geometry
from fastio.codec.headers import Headers, read_headers
from fastio.codec.pixel_limit import pixel_limit
from fastio.errors import SchemaError
from fastio.types.spans import Spans

__all__ = ["ImageCodec"]


class ImageCodec:
    """
    A picture in any format, recognised by its first bytes.

    Decodes to ``(n, H, W, C)`` with C 1, 3 or 4. Pixels equal Pillow's ``convert`` to "L", "RGB" or "RGBA", to the
    bit for PNG, and for JPEG with the same libjpeg-turbo arithmetic. What the native decoders do not handle is
    UNSUPPORTED: see ``fastio.codec.pillow``.
    """

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return a PNG of a uint8 array ``(H, W)`` or ``(H, W, C)`` with C 1 to 4."""
        pixels = value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value
        is_picture = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (2, 3, 4))
        if value.dtype != np.uint8 or not is_picture or 0 in value.shape:
            raise SchemaError(f"expected a picture as uint8 (H, W) or (H, W, 1 to 4), got {value.dtype} {value.shape}")
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
        return file.getvalue()

    def probe(self, spans: Spans) -> Headers:
        """Read the headers of the pictures."""
        return read_headers(spans)

    def rows(self, spans: Spans, *, verify: bool, geometry: Geometry | None = None) -> RowWork:
        """Return what ``decode`` does to these pictures, for batches that native code makes of parts of them."""
        if geometry is None:
            return _native.plain_rows(spans, verify=verify, is_encoded=True)
        return _native.transformed_rows(
            spans,
            geometry.plan,
            verify=verify,
            fast=geometry.is_fast,
            max_pixels=pixel_limit(),
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
        """Decode picture i into ``out[i]``, ``(n, H, W, C)`` or planar; see ``Codec.decode``."""
        if geometry is not None:
            return _native.decode_transformed(
                spans,
                geometry.plan,
                out,
                status,
                pool,
                verify=verify,
                fast=geometry.is_fast,
                max_pixels=pixel_limit(),
                **geometry.options,
            )
        return _native.decode_images(spans, out, status, pool, verify=verify)
