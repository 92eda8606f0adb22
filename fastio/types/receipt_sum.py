"""The number of some samples, of which a receipt is made: a sum over their indices and checksums."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio._native import receipt_sum

__all__ = ["MODULUS", "as_hex", "sum_indices", "sum_samples"]

MODULUS: Final = 1 << 64
_UNVERIFIED: Final = "\0unverified"  # no name of a field
_KEYS: dict[str, int] = {}


def sum_samples(field: str, indices: NDArray[np.int64], checksums: NDArray[np.uint32]) -> int:
    """Return the number of these samples of a payload field: a sum modulo 2**64 over index and CRC-32."""
    return receipt_sum(indices, checksums, _key(field))


def sum_indices(indices: NDArray[np.int64]) -> int:
    """Return the number of these samples if their bytes are not compared: that of no field."""
    return receipt_sum(indices, None, _key(_UNVERIFIED))


def as_hex(number: int) -> str:
    """
    Return a number of 64 bits as text.

    >>> as_hex(255)
    '00000000000000ff'
    """
    return f"{number:016x}"


def _key(field: str) -> int:
    """Return the 64 bits that stand for a field's name."""
    if field not in _KEYS:
        _KEYS[field] = int.from_bytes(blake2b(field.encode(), digest_size=8).digest(), "little")
    return _KEYS[field]
