"""Delivery: sends host batches ahead to a device and hands them over in order, after their copies and transforms."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.loader.device.lane import Lane, Mark
from fastio.loader.device.nested import BatchRoles, held_tensors, map_tensors, tensors
from fastio.loader.forks import PerProcess
from fastio.loader.ranges import COPY, TRANSFORM, named_range
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.finish import Contiguous
from fastio.transforms.batch.functions import PerSample
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.batch.recipe import AnyTransform, Recipe
from fastio.transforms.transform import Transform
from fastio.types.placement import Placement, Stage, called, repeated
from fastio.types.receipt import Receipt

__all__ = [
    "Delivery",
    "Numbered",
    "NumberedBatches",
    "Staging",
]


Place = TypeVar("Place")
_CLIP_AXES = 5


@dataclass(slots=True)
class Numbered:
    """
    A batch, its epoch, and the ids of its samples for random numbers: their indices.

    If a sample is drawn several times in the epoch, its repetitions have ids of their own (``Batches.ids``).
    """

    batch: Any
    epoch: int
    indices: NDArray[np.int64]


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
    the device (``is_made_there``) is asked for them on the side stream. ``roles`` says what transforms change; without
    it, they guess (see Recipe).

    In place of ``transforms`` and ``seed``, ``recipes`` may be given: one, or where ``roles`` have views, one for each;
    a user's own function then gets the pictures of its view.
    """

    def __init__(
        self,
        lane: Lane,
        *,
        depth: int,
        transforms: Sequence[AnyTransform] = (),
        seed: int = 0,
        is_made_there: bool = False,
        roles: BatchRoles | None = None,
        recipes: Sequence[Recipe] = (),
        frames: int | None = None,
    ) -> None:
        self._lane = lane
        self._frames = frames  # of a clip, in batches of clips (B, T, C, H, W); transforms see (B * T, C, H, W)
        self._roles = roles
        self._is_made_there = is_made_there
        self._depth = 0 if lane.is_immediate else depth
        self._has_views = roles is not None and roles.views
        self._recipes = list(recipes) or [Recipe(transforms, seed=seed)]
        self._staging = Staging(lane, self._depth + 1)

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        return self._lane.device

    def placed(self, made: Placement, *, pictures: Collection[str], label: str) -> Placement:
        """
        Return where batches are made of which a producer has ``made`` the fields: with what is done to the fields of
        ``pictures`` and to ``label`` here.
        """
        device, is_host = str(self.device), self._lane.is_immediate
        where = f"{device} in the loop's thread" if is_host else device
        python = "Python in the loop's thread" + ("" if is_host else f", on {device}")
        done = self._stages(self._recipes, where, python)
        if not is_host and (not done or done[0].where != where):
            done.insert(0, Stage(where))
        mixes = tuple(called(step) for step in self._recipes[0].transforms if mixes_of(step))
        of_label = [Stage(where, mixes)] if mixes or not is_host else []
        others = [] if is_host else [Stage(where)]
        stages = {name: done if name in pictures else of_label if name == label else others for name in made.fields}
        batch: list[Stage] = []
        following: list[Recipe] = self._recipes
        while following:
            if following is not self._recipes:
                batch += self._stages(following, where, python)
            if any(recipe.own for recipe in following):
                own = [tuple(map(called, recipe.own)) for recipe in following]
                batch.append(Stage(python, self._joined(own)))
            following = [recipe.next for recipe in following if recipe.next is not None]
        return made.then(stages, batch)

    def _stages(self, recipes: Sequence[Recipe], where: str, python: str) -> list[Stage]:
        """Return what the recipes of all views do in turn: PerSample in Python, all else by torch."""
        late, reason = _why_late(recipes[0]) if recipes is self._recipes else (0, "")
        phases = zip_longest(*map(_phases, recipes), fillvalue=())
        stages = [
            Stage(python if number % 2 else where, self._joined(steps), reason if number == late else "")
            for number, steps in enumerate(phases)
        ]
        return [stage for stage in stages if stage.steps]

    def _joined(self, views: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the steps of all views."""
        return repeated(views) if self._has_views else views[0]

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
        batch = self._sent_through(numbered, self._recipes, run)
        following = [recipe.next for recipe in self._recipes]
        while any(following):
            recipes = [recipe or Recipe([], seed=0) for recipe in following]
            batch = self._sent_through(Numbered(batch, numbered.epoch, numbered.indices), recipes, run)
            following = [recipe.next for recipe in recipes]
        return _Sent(batch, self._lane.mark(), place)

    def _sent_through(self, numbered: Numbered, every: Sequence[Recipe], run: _InFlight) -> Any:
        """Return a batch on the device, after one recipe, or one for each view; tensors may be there already."""
        given = tensors(numbered.batch)
        groups = [list(range(len(given)))] if self._roles is None else self._groups(numbered.batch, given, every)
        clips = [self._frames is not None and each.ndim == _CLIP_AXES for each in given]
        host = [each.flatten(0, 1) if is_clip else each for each, is_clip in zip(given, clips, strict=True)]
        recipes = [every[i % len(every)] for i in range(len(groups))]
        drawn = [
            recipe.draw([host[i] for i in group], numbered.indices, numbered.epoch)
            for recipe, group in zip(recipes, groups, strict=True)
        ]
        done: dict[int, torch.Tensor] = {}
        with named_range(COPY):
            copies = self._copied([*host, *tensors(drawn)], run)
        parts, numbers = copies[: len(host)], iter(copies[len(host) :])
        with named_range(TRANSFORM), self._lane.side() if any(every) else nullcontext():
            drawn = map_tensors(lambda _: next(numbers), drawn)
            for recipe, group, parameters in zip(recipes, groups, drawn, strict=True):
                made = recipe.run([parts[i] for i in group], parameters)
                for position, part in zip(group, made, strict=True):
                    part = self._as_clips(part) if clips[position] else part  # noqa: PLW2901
                    part = recipe.finish(part) if self._has_views else part  # noqa: PLW2901
                    done.setdefault(position, part)  # labels are those of the first picture
            for position, part in enumerate(parts):
                if position not in done:
                    done[position] = self._as_clips(part) if clips[position] else part
            arrived = iter(done[position] for position in range(len(parts)))
            batch = map_tensors(lambda _: next(arrived), numbered.batch)
            return batch if self._has_views else every[0].finish(batch)

    def _as_clips(self, frames: torch.Tensor) -> torch.Tensor:
        """Return frames (B * T, ...) as clips (B, T, ...)."""
        assert self._frames is not None
        return frames.reshape(-1, self._frames, *frames.shape[1:])

    def _groups(self, batch: Any, parts: list[torch.Tensor], every: Sequence[Recipe]) -> list[list[int]]:
        """Return where the pictures and the label are. Raises SchemaError if a function has put them elsewhere."""
        assert self._roles is not None
        try:
            return self._roles.groups(batch, parts)
        except (KeyError, IndexError, TypeError) as exc:
            if every is self._recipes:
                raise
            raise SchemaError(
                f"{every[0].transforms[0]!r} stands behind a PerBatch that returned {type(batch).__name__}: it needs "
                "pictures and label where they were in the batch"
            ) from exc

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


def _phases(recipe: Recipe) -> list[tuple[str, ...]]:
    """
    Return what the steps of a recipe are called: those of torch at even places, functions of single pictures at odd
    ones, without what a loader adds for the layout of memory.
    """
    phases: list[tuple[str, ...]] = [()]
    for step in recipe.transforms:
        if isinstance(step, Contiguous):
            continue
        if isinstance(step, PerSample) == len(phases) % 2:
            phases.append(())
        phases[-1] += (called(step),)
    return phases


def _why_late(recipe: Recipe) -> tuple[int, str]:
    """
    Return the phase of the first transform that native threads would run if it stood elsewhere, and why they do not;
    "" if there is none.
    """
    first, *others = recipe.transforms or [None]
    if isinstance(first, (PixelTransform, Transform)):
        return 0, ""  # native threads do not make these pictures
    late = next((step for step in others if isinstance(step, (PixelTransform, Transform))), None)
    if late is None:
        return 0, ""
    number = next(number for number, steps in enumerate(_phases(recipe)) if not number % 2 and called(late) in steps)
    return number, f"{called(late)} stands behind {called(first)}, which native threads do not run"


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
