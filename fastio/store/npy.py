"""Values and arrays as npy files: the header that stands before their bytes."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np

from fastio.types.schema import Field

__all__ = ["NPY", "npy_header", "npy_prefix"]

NPY = "npy"  # the extension


@lru_cache(maxsize=4096)
def npy_header(dtype: str, shape: tuple[int | None, ...]) -> bytes:
    """Return the header: 128 bytes for all shapes that tokens or small arrays have, so what follows is aligned."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def npy_prefix(field: Field, size: int) -> bytes:
    """Return what stands before a field's value of ``size`` bytes in a file of its own: a header, or nothing."""
    if field.traits.extension != NPY:
        return b""
    if field.traits.is_ragged:
        return npy_header(field.dtype, (size // field.unit_bytes if field.unit_bytes else 0, *field.shape[1:]))
    return npy_header(field.dtype, (size // field.unit_bytes,) if field.traits.is_sequence else field.shape)
