"""Measures what a machine and a training loop can do. Each name is imported when it is first used."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
