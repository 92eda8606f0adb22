"""Transforms of whole batches in torch: on the device after the copy, or on the CPU with the same code."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
