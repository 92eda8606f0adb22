"""Classification: pictures with one class each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fastio.errors import FastioError
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.finish import ChannelsLast, Finish, Normalize, ToDtype

__all__ = ["Classification"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """
    Batches of ``(images, labels)``: images (B, *shape), uint8 or already normalised, and labels int64 (B,).

    ``mean`` and ``std`` are per channel. ``any_size`` means that the network takes pictures of other sizes too.
    """

    shape: tuple[int, int, int]
    outputs: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    any_size: bool = False

    def prepared(self, batch: Any, layout: torch.memory_format) -> tuple[torch.Tensor, torch.Tensor]:
        """Convert uint8 pictures to normalised float32; floating pictures count as normalised. Both get ``layout``."""
        images, labels = batch
        if images.dtype == torch.uint8:
            images = Normalize(self.mean, self.std).after(Finish(images.dtype)).run(images)
        return images.contiguous(memory_format=layout), labels

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """Return the cross entropy."""
        images, labels = batch
        return functional.cross_entropy(network(images), labels)

    def random_batch(self, batch_size: int, generator: torch.Generator) -> list[torch.Tensor]:
        """Return uint8 noise and random classes."""
        images = torch.randint(0, 256, (batch_size, *self.shape), dtype=torch.uint8, generator=generator)
        return [images, torch.randint(0, self.outputs, (batch_size,), generator=generator)]

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """Return what normalises in one pass, in the dtype that the network computes in."""
        return [Normalize(self.mean, self.std), ToDtype(dtype), *([ChannelsLast()] if channels_last else [])]

    def check(self, batch: Any, where: str) -> None:
        expected = f"expected pictures (B, {', '.join(map(str, self.shape))}) and labels (B,)"
        if not (isinstance(batch, (tuple, list)) and len(batch) == 2 and all(map(torch.is_tensor, batch))):
            raise FastioError(f"{where}: {expected}, got {_kind(batch)}: pack with labels, or choose another --model")
        images, labels = batch
        channels, height, width = self.shape
        if images.ndim != 4 or images.shape[1] != channels:
            raise FastioError(f"{where}: {expected}, got {tuple(images.shape)}: choose another --model")
        if not self.any_size and tuple(images.shape[2:]) != (height, width):
            size = f"{images.shape[3]}x{images.shape[2]}"
            raise FastioError(f"{where}: expected pictures of {width}x{height}, got {size}: add --crop {width}")
        if labels.ndim != 1 or labels.is_floating_point():
            raise FastioError(f"{where}: {expected} of integers, got {labels.dtype} {tuple(labels.shape)}")
        self.check_labels(int(labels.min()), int(labels.max()), where)

    def check_labels(self, least: int, most: int, where: str) -> None:
        """Raise FastioError if the network has no output for a class."""
        if least < 0 or most >= self.outputs:
            raise FastioError(
                f"{where}: labels from {least} to {most}, but the model has {self.outputs} classes, 0 to "
                f"{self.outputs - 1}: choose another --model"
            )


def _kind(batch: Any) -> str:
    """Describe a batch in words."""
    if torch.is_tensor(batch):
        return f"a tensor {tuple(batch.shape)} alone"
    if isinstance(batch, (tuple, list)):
        return f"{len(batch)} parts"
    return "a dict with " + ", ".join(batch) if isinstance(batch, dict) else type(batch).__name__
