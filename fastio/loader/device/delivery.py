"""Delivery: host batches, sent ahead to a device, handed over in order behind their copies and transforms."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.loader.device.lane import Lane, Mark
from fastio.loader.device.nested import held_tensors, map_tensors, tensors
from fastio.loader.device.staging import Staging
from fastio.loader.forks import PerProcess
from fastio.loader.ranges import COPY, TRANSFORM, named_range
from fastio.transforms.batch.recipe import AnyTransform, Recipe

__all__ = ["Delivery", "Numbered", "NumberedBatches"]

Place = TypeVar("Place")


@dataclass(slots=True)
class Numbered:
    """
    A batch, the epoch that it belongs to, and what random numbers go by: the index of each sample.

    Where a sample is drawn several times in the epoch, its repetitions have numbers of their own (``Batches.ids``).
    """

    batch: Any
    epoch: int
    indices: NDArray[np.int64]


@runtime_checkable
class NumberedBatches(Protocol):
    """A loader that says which samples it hands out."""

    def numbered(self) -> Iterator[Numbered]:
        """As ``iter``, each batch with its epoch and indices."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration stands."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on there."""
        ...


@dataclass(slots=True)
class _Sent(Generic[Place]):
    """A batch on its way, and where its source stood behind it."""

    batch: Any
    arrived: Mark
    place: Place


@dataclass(slots=True)
class _End(Generic[Place]):
    """The source has no more: because of ``error``, or because it stands at the end of an epoch."""

    error: Exception | None
    place: Place


@dataclass(slots=True)
class _InFlight:
    """What one iteration holds on to; all of it is bounded by the depth."""

    # Host tensors that the device still reads by itself, and their ``_versions``.
    read_from: deque[tuple[Mark, Any, dict[int, int]]] = field(default_factory=deque)
    # Behind what the consumer had given its stream at each of its latest steps.
    steps: deque[Mark] = field(default_factory=deque)


class Delivery:
    """
    Sends batches ``depth`` ahead down a lane, runs ``transforms`` on them there, and hands them over.

    Pinned tensors are copied as they are, pageable ones by way of pinned staging. The consumer may run ahead of
    its own stream by ``depth + 1`` steps: so the device holds at most ``2 * depth + 3`` batches, and those that the
    consumer keeps. On the CPU nothing is to be copied, and nothing is asked for ahead. A source whose batches
    are made on the device (``is_made_there``) is asked for them on the side stream.
    """

    def __init__(
        self,
        lane: Lane,
        *,
        depth: int,
        transforms: Sequence[AnyTransform] = (),
        seed: int = 0,
        is_made_there: bool = False,
    ) -> None:
        self._lane = lane
        self._is_made_there = is_made_there
        self._depth = 0 if lane.is_immediate else depth
        self._recipe = Recipe(transforms, seed=seed)
        self._staging = Staging(lane, self._depth + 1)

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        return self._lane.device

    def run(
        self, source: Iterator[Numbered], *, place: Callable[[], Place], arrive: Callable[[Place], None]
    ) -> Iterator[Any]:
        """
        The batches of ``source``, on the device.

        ``place()`` tells where the source stands now; ``arrive(place)`` is called with where it stood when it made what
        the consumer gets now. What goes wrong with a batch is raised in its turn: those before it are still good.
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
                # Nothing here may hold the batch while the loop works with it, or its memory would come back late.
                ready = [latest.batch]
                del latest
                yield ready.pop()
        finally:
            ahead.clear()  # an error in it refers to this frame by its traceback: they would wait for Python's gc
            self._stop(source, in_flight)

    def _keep_step(self, run: _InFlight) -> None:
        """Wait where the consumer is too far ahead of its stream: memory would grow by a batch a step."""
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
        except Exception as exc:  # whatever it is, it is the consumer's, behind the batches before it
            return _End(exc, place())
        stands = place()
        try:
            return self._send(numbered, run, stands)
        except Exception as exc:  # likewise
            return _End(exc, stands)

    def _send(self, numbered: Numbered, run: _InFlight, place: Place) -> _Sent[Place]:
        host = tensors(numbered.batch)
        drawn = self._recipe.draw(host, numbered.indices, numbered.epoch)
        with named_range(COPY):
            copies = self._copied([*host, *tensors(drawn)], run)
        parts, numbers = copies[: len(host)], iter(copies[len(host) :])
        with named_range(TRANSFORM), self._lane.side() if self._recipe else nullcontext():
            parts = self._recipe.run(parts, map_tensors(lambda _: next(numbers), drawn))
            arrived = iter(parts)
            batch = self._recipe.finish(map_tensors(lambda _: next(arrived), numbered.batch))
        return _Sent(batch, self._lane.mark(), place)

    def _copied(self, host: list[torch.Tensor], run: _InFlight) -> list[torch.Tensor]:
        """These tensors on the device, when the side stream gets there."""
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
        """Let the source stop what it has under way, and the device finish what it reads from host memory."""
        if isinstance(source, Generator):
            source.close()
        run = in_flight.own
        if run is not None:  # a forked child has neither the device nor the copies
            for mark, _, _ in run.read_from:
                mark.wait()
            run.read_from.clear()


def _versions(batch: Iterable[torch.Tensor]) -> dict[int, int]:
    """Address of each host tensor -> how often torch has written to it."""
    return {each.data_ptr(): 0 if each.is_inference() else each._version for each in batch if each.device.type == "cpu"}


def _check_not_refilled(batch: Iterable[torch.Tensor], run: _InFlight) -> None:
    """RuntimeError where a pinned tensor was written to under a running copy: a batch before would be falsified."""
    if not run.read_from:
        return
    for address, version in _versions(batch).items():
        for _, _, under_way in run.read_from:
            if under_way.get(address, version) != version:
                raise RuntimeError(
                    "the iterator filled a pinned tensor anew while it was still being copied to the device; let it "
                    "hand out a new tensor for each batch, or pageable memory, which is copied before it goes on"
                )
