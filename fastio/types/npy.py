"""Arrays as .npy files of NumPy: the header before their bytes, and files that are the values of a field."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import lru_cache
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fastio.types.bfloat16 import BFLOAT16, dtype_name, is_bfloat16
from fastio.types.field_types import type_of
from fastio.types.schema import Field

__all__ = ["NpyHead", "npy_array", "npy_file", "npy_head", "npy_header", "npy_shape", "read_npy_header"]

_MAGIC = b"\x93NUMPY"
_HEAD_BYTES = 1 << 12  # in which the header of any array lies that a field can hold


@lru_cache(maxsize=4096)
def npy_header(dtype: str, shape: tuple[int | None, ...]) -> bytes:
    """Return the header: 128 bytes for all shapes that tokens or small arrays have, so what follows is aligned."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


# By format version; 3.0 differs from 2.0 in how names of fields are written, which no number has.
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """
    Return shape, whether the order is Fortran's, and dtype of a .npy file, whose values follow.

    Raises ValueError, in words about the file, for what is no header. Nothing is ever unpickled.
    """
    version = np.lib.format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"its format version is {version[0]}.{version[1]}, expected 1.0 to 3.0")
    try:
        shape, is_fortran, dtype = _READERS[version](file)
    except (TypeError, SyntaxError, RecursionError, MemoryError, TokenError) as exc:  # of a header that is no literal
        raise ValueError(f"its header cannot be parsed: {exc}") from exc
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in shape):
        raise ValueError(f"its shape is {shape!r:.80}")
    return shape, is_fortran, dtype


@dataclass(frozen=True, slots=True)
class NpyHead:
    """What the header of a .npy file says; an empty dtype for arrays that a field of arrays cannot hold."""

    size: int  # of the header
    dtype: str
    shape: tuple[int, ...]


def npy_head(head: bytes, size: int) -> NpyHead | str:
    """Return the header of a .npy file of ``size`` bytes that begins like this; a sentence if it is none."""
    if not head.startswith(_MAGIC) or len(head) < 12:
        return "is not an npy file"
    width = 2 if head[6] == 1 else 4
    stop = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    if stop > len(head):
        return "is not an npy file" if stop > size else NpyHead(0, "", ())
    header = _parsed(head[:stop])
    if isinstance(header, str) or not header.dtype:
        return header
    expected = stop + math.prod(header.shape) * np.dtype(header.dtype).itemsize
    return header if expected == size else f"is an npy file of {size} bytes, expected {expected} by its header"


@lru_cache(maxsize=4096)
def _parsed(header: bytes) -> NpyHead | str:
    try:
        shape, is_fortran, dtype = read_npy_header(io.BytesIO(header))
    except ValueError as exc:
        return f"has a damaged npy header: {str(exc).splitlines()[0][:80]}"
    is_plain = dtype.kind in "biufc" and not dtype.str.startswith(">")
    known = BFLOAT16 if is_bfloat16(dtype) else dtype.str if is_plain else ""
    return NpyHead(len(header), "" if is_fortran and len(shape) > 1 else known, shape)


# Files that are the values of a field whose arrays tell their shapes themselves.


def npy_file(array: NDArray[Any]) -> bytes:
    """
    Return the .npy file of an array, C order, as the values of such a field are stored.

    >>> npy_array(Field("latent", "array", "<f2", (4, None, None)), npy_file(np.ones((4, 2, 3), "<f2"))).shape
    (4, 2, 3)
    """
    return npy_header(array.dtype.str, array.shape) + array.tobytes()


def npy_shape(field: Field, data: bytes | bytearray | memoryview) -> tuple[int, ...]:
    """
    Return the shape of a value of such a field. Raises ValueError, in words that follow "is", unless it is the file of
    an array that the field takes.
    """
    return _head_of(field, data).shape


def npy_array(field: Field, data: bytes | bytearray | memoryview) -> NDArray[Any]:
    """Return the array of a value of such a field, over the same memory. Raises as ``npy_shape``."""
    head = _head_of(field, data)
    return np.frombuffer(data, field.dtype, offset=head.size).reshape(head.shape)


def _head_of(field: Field, data: bytes | bytearray | memoryview) -> NpyHead:
    begin = bytes(data[:_HEAD_BYTES])
    head = npy_head(begin, len(data))
    if isinstance(head, str):
        raise ValueError(f"no array: it {head}")
    if head.dtype != field.dtype or not field.takes(head.shape):
        dtype = dtype_name(head.dtype) if head.dtype else "another dtype"
        raise ValueError(f"an array of {dtype} {head.shape}, expected {type_of(field)}")
    return head
