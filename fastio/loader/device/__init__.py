"""Brings batches to the device: copies on a side stream, pinned staging, transforms after the copy."""

from __future__ import annotations

from fastio.loader.device.delivery import Delivery, Numbered, NumberedBatches

__all__ = ["Delivery", "Numbered", "NumberedBatches"]
