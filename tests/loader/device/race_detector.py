"""
A GPU's rules of order, on the CPU, beneath the real CudaLane: a race detector by vector clocks.

All work is done at once, so values are always right; what is checked is whether an order was asked for. The host and
each stream count their steps and know how many of each other's steps are surely done: a stream knows what the host knew
when it gave the work, the host learns by an event that it waited for or saw passed, a stream by an event or a stream
that it was told to wait for. Two accesses to the same memory, one of them a write, of which the later one does not know
the earlier one, are a race. (Vector clocks: Fidge 1988, Mattern 1989.)

The allocator gives a dead block to the next tensor of the same stream at once, as torch's does, unless
``record_stream`` noted other streams: then behind what these had been given when the block died.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from fastio.loader.device.lane import CudaLane

__all__ = ["Card", "RacedLane"]

_ASKS = ("aten::_local_scalar_dense", "aten::equal")  # the host waits for the answer
_NO_VALUES = ("aten::empty_like", "aten::new_empty", "aten::new_empty_strided", "aten::set_")


class Actor:
    """The host, or a stream: ``knows`` says how many steps of each actor are surely done before its next one."""

    def __init__(self, card: Card, name: str) -> None:
        self.card, self.name = card, name
        self.knows: Counter[str] = Counter()

    def begin_step(self) -> None:
        if self is not self.card.host:
            self.learn(self.card.host.knows)
        self.knows[self.name] += 1

    def learn(self, knowledge: Counter[str]) -> None:
        self.knows |= knowledge

    # What CudaLane and its marks ask of a torch.cuda.Stream:

    def wait_stream(self, other: Actor) -> None:
        other.begin_step()
        self.begin_step()
        self.learn(other.knows)

    def wait_event(self, event: Event) -> None:
        self.begin_step()
        self.learn(event.behind)


class Event:
    """A torch.cuda.Event; asked whether it is passed, it says yes or no as the card's dice fall."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.behind: Counter[str] = Counter()

    def record(self, stream: Actor) -> None:
        stream.begin_step()
        self.behind = Counter(stream.knows)

    def synchronize(self) -> None:
        self.card.host.learn(self.behind)

    def query(self) -> bool:
        if not self.behind <= self.card.host.knows:
            if self.card.dice.random() < 0.5:
                return False
            self.synchronize()
        return True


@dataclass(eq=False)
class Block:
    """Memory: of the device where a stream allocated it, else pinned memory of the host."""

    stream: Actor | None
    accesses: list[tuple[str, int, bool, str]] = field(default_factory=list)  # actor, its step, is a write, what it did
    users: set[Actor] = field(default_factory=set)  # noted by record_stream
    died: list[Event] = field(default_factory=list)  # what a new owner must be behind
    is_torchs: bool = True  # pinned by torch, whose allocator waits for copies; else gone when it dies


class Card(TorchDispatchMode):
    """One GPU and its host: whatever torch does within ``with card.simulated():`` is an access."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.dice = random.Random(seed)
        self.host = Actor(self, "host")
        self.consumer = self.current = Actor(self, "consumer")
        self.races: list[str] = []
        self._blocks: dict[int, tuple[StorageWeakRef, Block]] = {}  # address of torch's storage object -> its memory
        self._free: list[Block] = []
        self._streams = 0

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """torch.cuda as this card."""
        with pytest.MonkeyPatch.context() as patch, self:
            patch.setattr(torch.cuda, "Stream", lambda device: self.new_stream())
            patch.setattr(torch.cuda, "Event", lambda blocking=False: Event(self))
            patch.setattr(torch.cuda, "stream", self.on)
            patch.setattr(torch.cuda, "current_stream", lambda device: self.current)
            patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: self._used_by(tensor, stream))
            patch.setattr(torch.Tensor, "is_pinned", lambda tensor: self._is_pinned(tensor))
            yield

    def new_stream(self) -> Actor:
        self._streams += 1
        return Actor(self, f"stream {self._streams}")

    @contextmanager
    def on(self, stream: Actor) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy by the current stream; from pageable memory the host waits for it."""
        self._bury()
        with _disable_current_modes():
            copy = tensor.clone()
        self.current.begin_step()
        self._access(tensor, self.current, "is copied from")
        if not self._is_pinned(tensor):
            self.host.learn(self.current.knows)
        self._allocate(copy)
        return copy

    def pin(self, tensor: torch.Tensor, *, is_torchs: bool = False) -> torch.Tensor:
        """Let it be pinned; by the user, if not by torch."""
        storage = tensor.untyped_storage()
        self._blocks[storage._cdata] = (StorageWeakRef(storage), Block(None, is_torchs=is_torchs))
        return tensor

    def is_on_device(self, tensor: torch.Tensor) -> bool:
        block = self._block(tensor)
        return block is not None and block.stream is not None

    def _is_pinned(self, tensor: torch.Tensor) -> bool:
        block = self._block(tensor)
        return block is not None and block.stream is None

    def _used_by(self, tensor: torch.Tensor, stream: Actor) -> None:
        block = self._block(tensor)
        assert block is not None
        block.users.add(stream)

    def _block(self, tensor: torch.Tensor) -> Block | None:
        with _disable_current_modes():
            found = self._blocks.get(tensor.untyped_storage()._cdata)
        return None if found is None else found[1]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._bury()
        kwargs = kwargs or {}
        given = [*args, *kwargs.values()]
        is_here = any(self.is_on_device(each) for each in tree_leaves(given) if isinstance(each, torch.Tensor))
        actor = self.current if is_here else self.host
        out = func(*args, **kwargs)
        schema, name = func._schema, func._schema.name
        is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
        if is_view or name in _NO_VALUES:
            return out
        actor.begin_step()
        written = {each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write}
        names = [each.name for each in schema.arguments[: len(args)]] + list(kwargs)
        for argument, value in zip(names, given, strict=True):
            for tensor in (each for each in tree_leaves(value) if isinstance(each, torch.Tensor)):
                self._access(tensor, actor, name, is_write=argument in written)
        if is_here and name in _ASKS:
            self.host.learn(actor.knows)
        for tensor in (each for each in tree_leaves(out) if isinstance(each, torch.Tensor)):
            if is_here and self._block(tensor) is None:
                self._allocate(tensor)
        return out

    def _access(self, tensor: torch.Tensor, actor: Actor, what: str, *, is_write: bool = False) -> None:
        block = self._block(tensor)
        if block is not None:
            self._check(block, actor, what, is_write=is_write)

    def _check(self, block: Block, actor: Actor, what: str, *, is_write: bool) -> None:
        for other, step, was_write, before in block.accesses:
            if (is_write or was_write) and actor.knows[other] < step:
                self.races.append(f"{actor.name}: {what}, with nothing between it and {other}: {before}")
        if is_write:
            block.accesses.clear()
        block.accesses.append((actor.name, actor.knows[actor.name], is_write, what))

    def _allocate(self, tensor: torch.Tensor) -> None:
        """Memory for what the current stream makes now: the latest dead block that it may have."""
        free = (each for each in reversed(self._free) if each.stream is self.current)
        block = next((each for each in free if all(event.query() for event in each.died)), None)
        if block is None:
            block = Block(self.current)
        else:
            self._free.remove(block)
            block.users, block.died = set(), []
        storage = tensor.untyped_storage()
        self._blocks[storage._cdata] = (StorageWeakRef(storage), block)
        self.current.begin_step()  # the host may have learned just now that the block is free
        self._check(block, self.current, "fills new memory", is_write=True)

    def _bury(self) -> None:
        """Notice what has died since the step before."""
        for address, (alive, block) in list(self._blocks.items()):
            if not alive.expired():
                continue
            del self._blocks[address]
            if block.stream is not None:
                block.died = [Event(self) for _ in block.users]
                for event, user in zip(block.died, block.users, strict=True):
                    event.record(user)
                self._free.append(block)
            elif not block.is_torchs:
                self.host.begin_step()
                self._check(block, self.host, "gives memory back", is_write=True)

    def live(self) -> int:
        """Blocks of the device that somebody holds."""
        self._bury()
        return sum(block.stream is not None for _, block in self._blocks.values())


class RacedLane(CudaLane):
    """The CudaLane itself, to a Card: which tensors lie there, and the copy, are the card's."""

    def __init__(self, card: Card) -> None:
        super().__init__(torch.device("cuda", 0))
        self._card = card

    def _is_here(self, tensor: torch.Tensor) -> bool:
        return self._card.is_on_device(tensor)

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._card.to_device(tensor)

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """As Lane.pinned."""
        return self._card.pin(torch.empty(size_bytes, dtype=torch.uint8), is_torchs=True)
