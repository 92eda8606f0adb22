"""Transforms of whole batches: in torch on a device, on the CPU natively where they can be programs of colour."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
