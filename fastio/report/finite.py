"""Replaces figures that JSON cannot represent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["finite"]


def finite(value: Any) -> Any:
    """
    Return the value with None for NaN and infinity, such as the loss of a training that diverged.

    >>> finite({"losses": [0.5, float("nan")], "rate": float("inf")})
    {'losses': [0.5, None], 'rate': None}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(part) for part in value]
    return value
