"""A device that is as late as it may be: nothing is copied or read until somebody waits for it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from fastio.loader.device.lane import Mark
from fastio.loader.device.nested import map_tensors

__all__ = ["SlowLane", "pin"]

GARBAGE = 0xA5

PINNED: dict[int, Any] = {}  # address -> a reference, of what passes for pinned memory here


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Let a tensor pass for pinned as long as it lives."""
    address = tensor.data_ptr()
    PINNED[address] = weakref.ref(tensor, lambda _: PINNED.pop(address, None))
    return tensor


class Stream:
    """Work that is done in order, and not before it must."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()
        self._given = self._done = 0

    def give(self, work: Callable[[], object]) -> None:
        self._work.append(work)
        self._given += 1

    def mark(self) -> Point:
        return Point(self, self._given)

    def run(self, until: int) -> None:
        while self._done < until:
            self._done += 1
            self._work.popleft()()

    def finish(self) -> None:
        self.run(self._given)

    def is_behind(self, place: int) -> bool:
        return self._done >= place


class Point:
    """A mark in a Stream."""

    def __init__(self, stream: Stream, place: int) -> None:
        self._stream, self._place = stream, place

    def wait(self) -> None:
        self._stream.run(self._place)

    def is_passed(self) -> bool:
        return self._stream.is_behind(self._place)


class SlowLane:
    """
    A Lane whose "device" is other memory of the CPU.

    Fresh device memory is GARBAGE. Memory whose tensor has died becomes GARBAGE again at once, or, where it was handed
    over, behind what the consumer's stream was given until then. A copy fails if its source was changed before it ran.
    """

    is_immediate = False

    def __init__(self, *, checks_sources: bool = True) -> None:
        self.device = torch.device("cpu")
        self._checks_sources = checks_sources
        self.stream, self.consumer = Stream(), Stream()
        self.alive = self.most_alive = 0
        self.pinned_sizes: list[int] = []
        self.copied = 0
        self._memory: dict[int, torch.Tensor] = {}
        self._handed_over: set[int] = set()

    def is_ready(self, tensor: torch.Tensor) -> bool:
        address = tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0
        return address in PINNED or tensor.data_ptr() in self._memory

    def pinned(self, size_bytes: int) -> torch.Tensor:
        self.pinned_sizes.append(size_bytes)
        return pin(torch.full((size_bytes,), GARBAGE, dtype=torch.uint8))

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() in self._memory:
            return tensor
        self.copied += 1
        memory = torch.empty_like(tensor)
        _scribble(memory)
        promised = tensor.clone()

        def arrive() -> None:
            assert not self._checks_sources or torch.equal(promised, tensor), (
                "host memory was written to under a running copy"
            )
            memory.copy_(tensor)

        self.stream.give(arrive)
        if not self.is_ready(tensor):
            self.stream.finish()
        return self._allocated(memory)

    def _allocated(self, memory: torch.Tensor) -> torch.Tensor:
        """A tensor over this memory, whose death is noticed."""
        handed_out = (
            memory.view(memory.shape) if memory.is_contiguous() else memory.as_strided(memory.shape, memory.stride())
        )
        address = memory.data_ptr()
        self._memory[address] = memory
        self.alive += 1
        self.most_alive = max(self.alive, self.most_alive)
        weakref.finalize(handed_out, self._freed, address)
        return handed_out

    def _freed(self, address: int) -> None:
        def reuse() -> None:
            self.alive -= 1
            _scribble(self._memory.pop(address))

        if address in self._handed_over:
            self._handed_over.remove(address)
            self.consumer.give(reuse)
        else:
            reuse()

    def side(self) -> AbstractContextManager[object]:
        self.stream.finish()  # what runs at once in there runs behind the copies
        return nullcontext()

    def mark(self) -> Mark:
        return self.stream.mark()

    def consumer_mark(self) -> Mark:
        return self.consumer.mark()

    def hand_over(self, batch: Iterable[torch.Tensor], arrived: Mark) -> None:
        self.consumer.give(arrived.wait)
        self._handed_over |= {tensor.data_ptr() for tensor in batch} & self._memory.keys()

    def train(self, batch: Any, step: Callable[[Any], object]) -> None:
        """Let the consumer's stream do a step with a batch some time; as on a GPU, it holds no reference to it."""
        addresses = map_tensors(lambda tensor: torch.tensor(tensor.data_ptr()), batch)
        memory = self._memory
        self.consumer.give(lambda: step(map_tensors(lambda address: memory[int(address)].clone(), addresses)))


def _scribble(memory: torch.Tensor) -> None:
    memory.untyped_storage().copy_(
        torch.full((memory.untyped_storage().nbytes(),), GARBAGE, dtype=torch.uint8).untyped_storage()
    )
