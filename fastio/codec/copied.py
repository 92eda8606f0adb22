"""
Values that are copied, byte for byte: arrays, token ids, text, JSON. They differ in what they let in. Pictures that lie
there as planes are put together on their way.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Job, RowWork, ThreadPool
from fastio.codec.headers import Headers
from fastio.errors import SchemaError
from fastio.types.npy import npy_file
from fastio.types.schema import Field
from fastio.types.spans import Spans

if TYPE_CHECKING:
    from fastio.codec.codec import Geometry  # which brings Pillow

__all__ = ["JsonCodec", "NpyCodec", "PlanarCodec", "RawCodec", "TextCodec", "TokensCodec", "parse_json", "pixels_of"]


class _CopiedCodec:
    """Copies bytes into rows of their size, whatever they mean."""

    from_planes = False

    def probe(self, spans: Spans) -> Headers:
        """All are OK and of unknown size, for such values have no header."""
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
        """Copy value i into ``out[i]``, of any dtype; one of another size than the row is BAD_SHAPE."""
        if geometry is not None:
            raise ValueError("these values have no geometry: they are no pictures")
        if not out.flags.c_contiguous:
            raise ValueError(f"out must be C contiguous, got strides {out.strides} for shape {out.shape}")
        rows = out.reshape(len(out), math.prod(out.shape[1:])).view(np.uint8)
        planes = out.shape[-1] if self.from_planes else 0
        return _native.gather(spans, rows, status, pool, verify=verify, planes=planes)


class TokensCodec(_CopiedCodec):
    """Token ids, for samples of equal length; batches of several lengths are laid out elsewhere."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the ids' bytes, little endian, in the width that they have."""
        if value.ndim != 1 or value.dtype.str not in ("<u2", "<u4"):
            raise SchemaError(f"token ids are '<u2' or '<u4' of one dimension, got {value.dtype.str!r} {value.shape}")
        return value.tobytes()


class TextCodec(_CopiedCodec):
    """Text as UTF-8, for samples of equal length in bytes."""

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


class JsonCodec(_CopiedCodec):
    """JSON as UTF-8: one document per sample, for those of equal length in bytes; ``parse_json`` reads one."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the bytes themselves. Raises SchemaError if they are not a JSON document in UTF-8."""
        if value.ndim != 1 or value.dtype != np.uint8:
            raise SchemaError(f"JSON is '|u1' of one dimension, got {value.dtype.str!r} {value.shape}")
        data = value.tobytes()
        try:
            parse_json(data)
        except ValueError as exc:
            raise SchemaError(f"expected a JSON document in UTF-8, but {exc}") from exc
        return data


class NpyCodec(_CopiedCodec):
    """Arrays as .npy files, which tell their shapes, for samples of equal size in bytes; ``npy_array`` reads one."""

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the file of the array, C order, little endian."""
        return npy_file(value.astype(value.dtype.newbyteorder("<"), copy=False))


class RawCodec(_CopiedCodec):
    """
    Arrays of fixed dtype and shape; also used for plain ``bytes`` fields that fill a row exactly. Rows of pixels can be
    transformed on their way.
    """

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the array's bytes in C order, little endian."""
        return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()

    def rows(self, spans: Spans, *, verify: bool, geometry: Geometry | None = None) -> RowWork:
        """Return what ``decode`` does to these values, for batches that native code makes of parts of them."""
        if geometry is None:
            return _native.plain_rows(spans, verify=verify, is_encoded=False, from_planes=self.from_planes)
        return _native.transformed_rows(
            spans,
            geometry.plan,
            verify=verify,
            fast=False,
            stored=geometry.stored,
            from_planes=self.from_planes,
            **geometry.options,
        )

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
        """Copy value i into ``out[i]``, or, with a geometry, transform its pixels."""
        if geometry is None:
            return super().decode(spans, out, status, pool=pool, verify=verify)
        if not out.flags.c_contiguous:
            raise ValueError(f"out must be C contiguous, got strides {out.strides} for shape {out.shape}")
        return self._transform(spans, out, status, pool=pool, verify=verify, geometry=geometry)

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
        """Transform pixels, uint8 of the size that the geometry names, into ``out``."""
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
            from_planes=self.from_planes,
            **geometry.options,
        )


class PlanarCodec(RawCodec):
    """Pictures of 8 bits whose channels lie one behind the other, ``(C, H, W)``; rows are as those of ``RawCodec``."""

    from_planes = True

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the bytes of the channels of ``(H, W, C)``, one behind the other."""
        return np.moveaxis(value, -1, 0).tobytes()


def pixels_of(field: Field, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pixels of a raw picture, ``(H, W)`` or ``(H, W, C)``, from its bytes as stored."""
    shape = tuple(size for size in field.shape if size is not None)
    if not field.traits.is_planar:
        return data.reshape(shape)
    height, width, channels = shape
    return np.ascontiguousarray(np.moveaxis(data.reshape(channels, height, width), 0, -1))


def parse_json(data: bytes) -> Any:
    """
    Return the object of a JSON document. NaN and infinities, which JSON lacks, are read as Python writes them.

    Raises ValueError that says what is wrong: not UTF-8, not JSON, or nested too deeply.
    """
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError as exc:
        raise ValueError(f"byte {exc.start} is 0x{data[exc.start]:02x}: {exc.reason}") from exc
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
