"""The module that held ``TextTokens`` in 0.1."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "TextTokens":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"{__name__}.TextTokens: write from fastio.converters.text.encode import TextTokens instead",
        DeprecationWarning,
        stacklevel=2,
    )
    from fastio.converters.text.encode import TextTokens

    return TextTokens
