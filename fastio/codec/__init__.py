"""Codecs turn bytes into arrays: one codec for each name that a schema may give a field."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
