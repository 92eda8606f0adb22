"""Text as UTF-8, and JSON as UTF-8: one value or document per sample."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Job, ThreadPool
from fastio.codec.headers import Headers
from fastio.errors import SchemaError
from fastio.types.spans import Spans

if TYPE_CHECKING:  # listing a store needs no Pillow
    from fastio.codec.codec import Geometry

__all__ = [
    "JsonCodec",
    "TextCodec",
    "parse_json",
]


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


# JSON as UTF-8: one document per sample.


class JsonCodec:
    """Copies the bytes of documents unchanged, for samples of equal length in bytes; ``parse_json`` reads one."""

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

    def probe(self, spans: Spans) -> Headers:
        """All are OK and of unknown size, for JSON has no header."""
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
            raise ValueError("JSON has no geometry")
        return _native.gather(spans, out, status, pool, verify=verify)


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
