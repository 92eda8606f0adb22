"""Delivery: sends host batches ahead to a device and hands them over in order, after their copies and transforms."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from fastio.lazy import torch
from fastio.loader.batch_steps import BatchSteps, Numbered
from fastio.loader.device.lane import Lane, Mark
from fastio.loader.device.nested import held_tensors
from fastio.loader.forks import PerProcess
from fastio.transforms.batch.functions import FailedSamplesError
from fastio.transforms.batch.recipe import AnyTransform, Recipe
from fastio.types.placement import Placement
from fastio.types.receipt import Receipt

__all__ = [
    "Delivery",
    "HostDelivery",
    "NumberedBatches",
    "Staging",
]

Place = TypeVar("Place")


@runtime_checkable
class NumberedBatches(Protocol):
    """A loader that tells which samples it hands out."""

    def numbered(self) -> Iterator[Numbered]:
        """Like ``iter``, but each batch comes with its epoch and indices."""
        ...

    def ahead(self) -> tuple[Iterator[Numbered], Callable[[], Any], Callable[[Any], None]]:
        """
        Like ``numbered``, for a consumer that gets the batches later.

        The first function returns the position after the batch that came last; the second one is called with it when
        the consumer gets that batch. States and receipts are the consumer's.
        """
        ...

    def receipt(self, *, own: bool = False, timeout_s: float = 60) -> Receipt:
        """Return the receipt of the latest iteration: see FastLoader."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue at this position."""
        ...


@dataclass(slots=True)
class _Sent(Generic[Place]):
    """A batch on its way, and the position of its source after it."""

    batch: Any
    arrived: Mark
    place: Place


@dataclass(slots=True)
class _End(Generic[Place]):
    """The source has no more batches: because of ``error``, or because its epoch has ended."""

    error: Exception | None
    place: Place


@dataclass(slots=True)
class _InFlight:
    """What one iteration holds; the depth limits all of it."""

    # Host tensors that the device is still reading, and their ``_versions``.
    read_from: deque[tuple[Mark, Any, dict[int, int]]] = field(default_factory=deque)
    # Marks after what the consumer had submitted to its stream at each of its latest steps.
    steps: deque[Mark] = field(default_factory=deque)


class Delivery:
    """
    Sends batches ``depth`` ahead through a lane, runs ``transforms`` on them there, and hands them over.

    Pinned tensors are copied directly, pageable ones through pinned staging memory. The consumer may run ahead of its
    own stream by ``depth + 1`` steps, so the device holds at most ``2 * depth + 3`` batches besides those that the
    consumer keeps. On the CPU, nothing is copied and nothing is requested ahead. A source that makes its batches on
    the device (``is_made_there``) is asked for them on the side stream. In place of ``transforms`` and ``seed``,
    ``steps`` may be given.
    """

    def __init__(
        self,
        lane: Lane,
        *,
        depth: int,
        transforms: Sequence[AnyTransform] = (),
        seed: int = 0,
        is_made_there: bool = False,
        steps: BatchSteps | None = None,
    ) -> None:
        self._lane = lane
        self._is_made_there = is_made_there
        self._depth = 0 if lane.is_immediate else depth
        self._steps = steps or BatchSteps([Recipe(transforms, seed=seed)])
        self._staging = Staging(lane, self._depth + 1)

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        return self._lane.device

    @property
    def has_steps(self) -> bool:
        """Whether something is done to batches there."""
        return bool(self._steps)

    def placed(self, made: Placement, *, pictures: Collection[str], label: str) -> Placement:
        """As BatchSteps.placed, here."""
        device, is_host = str(self.device), self._lane.is_immediate
        return self._steps.placed(made, pictures=pictures, label=label, device=device, is_host=is_host)

    def run(
        self, source: Iterator[Numbered], *, place: Callable[[], Place], arrive: Callable[[Place], None]
    ) -> Iterator[Any]:
        """
        Yield the batches of ``source``, on the device.

        ``place()`` returns the position of the source now; ``arrive(place)`` is called with its position when it made
        what the consumer gets now. An error in a batch is raised in its turn: the batches before it are still good.
        """
        ahead: deque[_Sent[Place] | _End[Place]] = deque()
        in_flight = PerProcess(_InFlight)
        run = in_flight.here()
        try:
            while True:
                self._keep_step(run)
                while len(ahead) <= self._depth and not (ahead and isinstance(ahead[-1], _End)):
                    with self._lane.side() if self._is_made_there else nullcontext():
                        ahead.append(self._sent(source, run, place))
                latest = ahead.popleft()
                if isinstance(latest, _End):
                    if latest.error is not None:
                        raise latest.error
                    arrive(latest.place)
                    return
                self._lane.hand_over(held_tensors(latest.batch), latest.arrived)
                arrive(latest.place)
                # Nothing here may keep the batch while the loop uses it, or its memory would be returned late.
                ready = [latest.batch]
                del latest
                yield ready.pop()
        finally:
            ahead.clear()  # an error refers to this frame by its traceback: the batches would wait for Python's gc
            self._stop(source, in_flight)

    def _keep_step(self, run: _InFlight) -> None:
        """Wait if the consumer is too far ahead of its stream: memory would grow by a batch per step."""
        run.steps.append(self._lane.consumer_mark())
        if len(run.steps) > self._depth + 1:
            run.steps.popleft().wait()

    def _sent(
        self, source: Iterator[Numbered], run: _InFlight, place: Callable[[], Place]
    ) -> _Sent[Place] | _End[Place]:
        while run.read_from and run.read_from[0][0].is_passed():
            run.read_from.popleft()
        try:
            numbered = next(source)
        except StopIteration:
            return _End(None, place())
        except Exception as exc:  # any error is the consumer's, after the batches before it
            return _End(exc, place())
        stands = place()
        try:
            return self._send(numbered, run, stands)
        except Exception as exc:  # likewise
            return _End(exc, stands)

    def _send(self, numbered: Numbered, run: _InFlight, place: Place) -> _Sent[Place]:
        try:
            batch = self._steps.run(numbered, copied=lambda host: self._copied(host, run), side=self._lane.side)
        except FailedSamplesError as failed:
            raise failed.first from failed.first.__cause__
        return _Sent(batch, self._lane.mark(), place)

    def _copied(self, host: list[torch.Tensor], run: _InFlight) -> list[torch.Tensor]:
        """Return these tensors on the device; they are valid once the side stream gets there."""
        lane = self._lane
        pinned = {place: each for place, each in enumerate(host) if lane.is_ready(each)}
        _check_not_refilled(pinned.values(), run)
        pageable = {
            place: each
            for place, each in enumerate(host)
            if place not in pinned and each.device.type == "cpu" and each.layout == torch.strided
        }
        copies = {place: lane.copy(each) for place, each in enumerate(host) if place not in pageable}
        if pageable:
            with self._staging.take(list(pageable.values())) as staged:
                copies.update(zip(pageable, map(lane.copy, staged.copies), strict=True))
        if pinned and not lane.is_immediate:
            run.read_from.append((lane.mark(), list(pinned.values()), _versions(pinned.values())))
        return [copies[place] for place in range(len(host))]

    def _stop(self, source: Iterator[Numbered], in_flight: PerProcess[_InFlight]) -> None:
        """Let the source stop its running work, and the device finish reading host memory."""
        if isinstance(source, Generator):
            source.close()
        run = in_flight.own
        if run is not None:  # a forked child has neither the device nor the copies
            for mark, _, _ in run.read_from:
                mark.wait()
            run.read_from.clear()


class HostDelivery:
    """Hands over batches that stay on the host, each after the ``steps``, which are done when the loop asks for it."""

    def __init__(self, steps: BatchSteps) -> None:
        self._steps = steps

    def placed(self, made: Placement, *, pictures: Collection[str], label: str) -> Placement:
        """As BatchSteps.placed, here."""
        return self._steps.placed(made, pictures=pictures, label=label, device="cpu")

    def run(
        self, source: Iterator[Numbered], *, place: Callable[[], Place], arrive: Callable[[Place], None]
    ) -> Iterator[Any]:
        """As Delivery.run."""
        done = self.numbered(source)
        try:
            for numbered in done:
                # Nothing here may keep the batch while the loop uses it, or its memory would be returned late.
                ready = [numbered.batch]
                del numbered
                arrive(place())
                yield ready.pop()
            arrive(place())
        finally:
            done.close()

    def numbered(self, source: Iterator[Numbered]) -> Generator[Numbered, None, None]:
        """Yield the batches of ``source`` after the steps."""
        try:
            for numbered in source:
                ready = [Numbered(self._steps.run(numbered), numbered.epoch, numbered.indices)]
                del numbered
                yield ready.pop()
        finally:
            if isinstance(source, Generator):
                source.close()


def _versions(batch: Iterable[torch.Tensor]) -> dict[int, int]:
    """Map the address of each host tensor to the number of times torch has written to it."""
    return {each.data_ptr(): 0 if each.is_inference() else each._version for each in batch if each.device.type == "cpu"}


def _check_not_refilled(batch: Iterable[torch.Tensor], run: _InFlight) -> None:
    """Raise RuntimeError if a pinned tensor was written to during its copy: an earlier batch would be corrupted."""
    if not run.read_from:
        return
    for address, version in _versions(batch).items():
        for _, _, under_way in run.read_from:
            if under_way.get(address, version) != version:
                raise RuntimeError(
                    "the iterator refilled a pinned tensor while it was still being copied to the device: let it "
                    "return a new tensor for each batch, or pageable memory, which is copied before it continues"
                )


# Pinned memory through which pageable batches are copied: pinned once, used in turn.

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
