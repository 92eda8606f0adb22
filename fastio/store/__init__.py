"""Packed containers. Each name is imported when it is first used: reading needs no writer, and no network."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
