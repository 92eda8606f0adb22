"""Pictures of (H, W, 3) into batches of (B, 3, H, W) without moving a pixel: channels_last memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.data import default_collate

__all__ = ["channels_first"]


def channels_first(samples: Sequence[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch's default collate makes of (H, W, 3) pictures and numbers, seen as (B, 3, H, W)."""
    images, numbers = default_collate(samples)
    return images.permute(0, 3, 1, 2), numbers
