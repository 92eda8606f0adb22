"""Reads .npy files: headers without their data, and data that must have the size that the header says."""

from __future__ import annotations

import io
import math
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["parse_npy", "read_npy_header"]

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype. Raises ValueError; nothing is ever unpickled."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format version is {version[0]}.{version[1]}, expected 1.0 or 2.0")
    try:
        shape, is_fortran, dtype = _HEADERS[version](file)
    except (TypeError, SyntaxError, RecursionError, MemoryError, TokenError) as exc:  # of a header that is no literal
        raise ValueError(f"its header cannot be parsed: {exc}") from exc
    if dtype.hasobject:
        raise ValueError("it holds Python objects: save numbers instead")
    if dtype.kind not in "biufc":
        raise ValueError(f"it holds {dtype}, expected numbers")
    return shape, is_fortran, dtype


def parse_npy(data: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a .npy file, little endian. Raises ValueError that says what is wrong."""
    file = io.BytesIO(data)
    shape, is_fortran, dtype = read_npy_header(file)
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    if len(data) - start != size:
        raise ValueError(f"its header promises {size:,} bytes of {dtype} {shape}, but {len(data) - start:,} follow")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if is_fortran else "C")
    return np.ascontiguousarray(array.astype(dtype.newbyteorder("<"), copy=False)).reshape(shape)
