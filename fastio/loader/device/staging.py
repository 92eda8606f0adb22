"""Pinned memory through which pageable batches are copied: pinned once, used in turn."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Self

import torch

from fastio.loader.device.lane import Lane, Mark

__all__ = ["Staging"]

_ALIGNMENT = 256


@dataclass(slots=True)
class _Slot:
    """Pinned memory for one batch, and the mark after the copies that read it."""

    memory: torch.Tensor
    read: Mark | None = None


class Staging:
    """
    At most ``slots`` pieces of pinned memory, each as large as the largest batch that went through it.

    The oldest one is taken next, after its copies have finished. Iterators may share one Staging, also in several
    threads: a slot in use belongs to one of them, and when all are in use, there is one more.
    """

    def __init__(self, lane: Lane, slots: int) -> None:
        self._lane = lane
        nothing = torch.empty(0, dtype=torch.uint8, device="cpu")
        self._free = deque(_Slot(nothing) for _ in range(slots))

    @property
    def pinned_bytes(self) -> int:
        """Bytes pinned so far."""
        return sum(slot.memory.nbytes for slot in list(self._free))

    def take(self, batch: list[torch.Tensor]) -> StagedCopies:
        """Return pinned copies of these tensors, with the same strides if they are dense, without gradients."""
        starts, end = [], 0
        for tensor in batch:
            starts.append(end)
            end += math.ceil(tensor.nbytes / _ALIGNMENT) * _ALIGNMENT
        slot = self._slot(end)
        copies = []
        for tensor, start in zip(batch, starts, strict=True):
            bytes_ = slot.memory[start : start + tensor.nbytes]
            # A meta tensor costs nothing and knows the strides of a dense copy.
            strides = torch.empty_like(tensor, device="meta").stride()
            copies.append(bytes_.view(tensor.dtype).as_strided(tensor.shape, strides).copy_(tensor.detach()))
        return StagedCopies(self, slot, copies)

    def _slot(self, size_bytes: int) -> _Slot:
        try:
            slot = self._free.popleft()
        except IndexError:  # all are in use, by iterators of several threads
            return _Slot(self._pinned(size_bytes))
        if slot.read is not None:
            slot.read.wait()
        if slot.memory.nbytes < size_bytes:
            slot.memory = self._pinned(size_bytes)
        return slot

    def _pinned(self, size_bytes: int) -> torch.Tensor:
        """Return memory that may be filled in and outside of inference mode, whichever is on now."""
        with torch.inference_mode(mode=False):
            return self._lane.pinned(size_bytes)

    def give_back(self, slot: _Slot) -> None:
        """The slot may be used again behind what the lane was given so far."""
        slot.read = self._lane.mark()
        self._free.append(slot)


class StagedCopies:
    """Tensors ``copies`` in a slot, which is returned at the end of a ``with`` block, after what was copied in it."""

    def __init__(self, staging: Staging, slot: _Slot, copies: list[torch.Tensor]) -> None:
        self.copies = copies
        self._staging = staging
        self._slot = slot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._staging.give_back(self._slot)
