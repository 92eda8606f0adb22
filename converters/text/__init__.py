"""Packs text into stores of tokens or UTF-8, and unpacks them again. Each name is imported on first use."""

from __future__ import annotations

import warnings
from typing import Any

from fastio.lazy import attach_stub

_public, __dir__, __all__ = attach_stub(__name__)


def __getattr__(name: str) -> Any:
    if name not in ("TEXT_SOURCES", "TextKind"):
        return _public(name)
    now = "SourceKind" if name == "TextKind" else "SOURCES, whose rows with open_text are kinds of text,"
    warnings.warn(
        f"fastio.converters.text.{name}: write from fastio.converters import {now} instead",
        DeprecationWarning,
        stacklevel=2,
    )
    from fastio.store.kinds.registry import SOURCES, SourceKind

    if name == "TextKind":
        return SourceKind
    return {kind: each for kind, each in SOURCES.items() if each.open_text is not None}
