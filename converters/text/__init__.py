"""Packs text into stores of tokens or UTF-8, and unpacks them again. Each name is imported on first use."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
