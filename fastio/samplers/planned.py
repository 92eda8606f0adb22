"""The base of samplers that plan whole epochs, and what ranks have consumed of a plan."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.agreement import SURE_AFTER, Agreement
from fastio.samplers.batches import Batches
from fastio.samplers.position import GIVEN_UP, as_state, check_state, plain, value_in, whole, whole_epoch
from fastio.samplers.share import Ranks, Share, check_resumed_epoch
from fastio.types.options import cannot_be_set

__all__ = [
    "Draws",
    "PlannedSampler",
    "as_lengths",
    "check_consumed",
    "even_steps",
    "place_in",
    "shuffled",
]


log = logging.getLogger(__name__)

# Version 1 counted the batches of one rank, version 2 the steps of each division; both go on.
_STATE_VERSION = 3
_LONGEST = (1 << 31) - 1
_SHARED_TWICE = "give it rank=0, world_size=1, or take the loader from fastio.integrations.accelerate.prepare_loader"


class PlannedSampler(ABC):
    """
    A ``batch_sampler`` for torch's DataLoader: yields each batch as a list of ints.

    This is a base class, against the rule of this code base: torch and its users expect the six methods below on the
    sampler itself, and two samplers would repeat them. Each iteration is one epoch; ``set_epoch`` sets its number, as
    with FastLoader. The position counts the batches handed out. A DataLoader with workers asks for some of them
    ahead; FastLoader's own ``state_dict`` does not count those.

    An epoch is planned for the ranks and batches with which it begins: that brings its samples into an order. Other
    ranks, with batches of other sizes, go on in the same order (see ``ElasticSampler``); ``consumed`` is a ``History``.
    """

    seed: int
    shuffle: bool
    rank: int
    world_size: int

    def __init__(self, lengths: ArrayLike, ranks: Ranks) -> None:
        self._lengths = as_lengths(lengths, "lengths")
        self._agreement: Agreement | None
        self._take(ranks)
        self._checksum = _native.crc32(self._lengths)
        self._next: tuple[int, History | None] = (0, None)  # epoch, and what was consumed of it before
        self._handed_out: tuple[int, History | None, int] | None = None  # the same, and the batches since
        self._iterations = 0  # older iterations no longer count
        self._planned: tuple[Any, Batches, Any] | None = None

    if not TYPE_CHECKING:  # a checker would then take any attribute for known

        def __setattr__(self, name: str, value: Any) -> None:
            """
            Raise AttributeError, with what to do, for a public attribute of a sampler that is built: plans that exist
            would not change. A subclass may set its own.
            """
            if "_built" in self.__dict__ and not name.startswith("_"):
                raise cannot_be_set(name, type(self))
            super().__setattr__(name, value)

    def _close(self, kind: type) -> None:
        """Let no public attribute be set from here on, unless this is a subclass of ``kind``."""
        if type(self) is kind:
            self._built = True

    @property
    def share(self) -> Share:
        """The part of the samples that this process gets."""
        return self._share

    def for_ranks(self, ranks: Ranks) -> Self:
        """Return a sampler with the same options for other ranks: as it would be if it were built there."""
        other = copy(self)
        other._take(ranks)
        other._planned, other._iterations = None, 0
        other._forget()
        return other

    def _take(self, ranks: Ranks) -> None:
        """Set the ranks, and what depends on them."""
        own = self.__dict__  # public attributes of a sampler that is built cannot be set
        self._share = ranks.share()
        own["rank"], own["world_size"] = self._share.rank, self._share.world_size
        self._agreement = Agreement(self._share, f"this {type(self).__name__}", self._options)

    @abstractmethod
    def _rule(self) -> StepRule:
        """Return how samples are divided: all that the plan depends on besides lengths, shuffle, seed and epoch."""
        ...

    @abstractmethod
    def _rule_of(self, options: Mapping[str, Any]) -> StepRule:
        """Return the rule with these options. Raises ValueError or TypeError for other options."""
        ...

    def plan(self, epoch: int, consumed: History | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch; the latest plan is kept."""
        self._share.check_ranks(f"this {type(self).__name__}")
        return self._plan(epoch, consumed or [])[0]

    def _plan(self, epoch: int, history: History) -> tuple[Batches, Any]:
        """
        Return what is left of this rank's batches, and what of the order is consumed before each step and after the
        last (see ``PlannedOrder``). Raises ValueError if the history is not one of this epoch.
        """
        rule = self._rule()
        key = epoch, history, rule
        planned = self._planned  # once: another thread may plan another epoch
        if planned is None or planned[0] != key:
            order, consumed = self._begun(epoch, history)
            ends = order.steps(rule, consumed)
            units = order.batches(rule, self.rank, ends)
            planned = self._planned = key, self._samples_of(units, epoch), _given(ends, units)
        return planned[1:]

    def _begun(self, epoch: int, history: History) -> tuple[PlannedOrder, Any]:
        """Return the order in which what is left of an epoch comes, and how many samples of it are consumed."""
        units, draws = self._units(epoch), Draws(int(self.seed), epoch if self.shuffle else None)
        rules = [self._rule_of(_options(entry)) for entry in history]
        goes_on = bool(rules) and self._goes_on(rules[-1])
        if not goes_on:
            rules.append(self._rule())
        left: NDArray[np.int64] | None = None
        for stage, (rule, entry) in enumerate(zip(rules, history, strict=False)):
            order = rule.order(units, left, draws.of_stage(stage))
            consumed = _consumed_of(order, rule, entry)
            if goes_on and entry is history[-1]:
                return order, consumed
            left = order.left(consumed)
        return rules[-1].order(units, left, draws.of_stage(len(history))), 0

    @abstractmethod
    def _goes_on(self, begun: Any) -> bool:
        """Return whether the order that the rule ``begun`` planned goes on here; else what is left is planned anew."""
        ...

    def _units(self, epoch: int) -> NDArray[np.int32]:
        """Return the lengths of what an epoch divides among ranks and batches: by default, of the samples."""
        return self._lengths

    def _samples_of(self, units: Batches, epoch: int) -> Batches:
        """Return the samples of batches of such units."""
        return units

    def count(self, epoch: int, consumed: History | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return len(self.plan(epoch, consumed))

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch: see WholeEpochs; None if some are dropped: which ones, only the plan says."""
        return None if dropped else np.arange(len(self._lengths), dtype=np.int64)

    def advanced(self, epoch: int, consumed: History | None, batches: int) -> History | None:
        """Return what has been consumed after so many more batches of each rank."""
        if batches == 0:
            return consumed
        history = consumed or []
        samples = _after(batches, self._plan(epoch, history)[1])
        if history and self._goes_on(self._rule_of(_options(history[-1]))):
            return [*history[:-1], {**_options(history[-1]), "samples": samples}]
        return [*history, {**self._rule().to_json(), "samples": samples}]

    def checked(self, epoch: int, consumed: Any) -> History | None:
        """Return the history of a state. Raises ValueError if it cannot be one of this epoch."""
        if not consumed and consumed in (None, []):
            return None
        if not isinstance(consumed, list) or not all(isinstance(entry, Mapping) for entry in consumed):
            raise ValueError(f"consumed={consumed!r}: expected a list of divisions and what they had in the state")
        self._share.check_ranks(f"this {type(self).__name__}")  # not the state's fault
        try:
            history = [self._checked_entry(entry) for entry in consumed]
            self.plan(epoch, history)
        except ValueError as exc:
            raise ValueError(f"consumed={consumed!r}: is damaged: {exc}") from exc
        return history

    def _checked_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of a history in plain values. Raises ValueError if an option is unknown, missing or wrong."""
        try:
            rule = self._rule_of(_options(entry))
        except TypeError as exc:  # an option is missing, or unknown
            raise ValueError(str(exc)) from exc
        name = "samples" if "samples" in entry else "steps"
        return {**rule.to_json(), name: self._checked_count(name, entry.get(name))}

    def _checked_count(self, name: str, count: Any) -> Any:
        """Return how much an entry says to be consumed. Raises ValueError if that is no number of it."""
        return whole(name, count, "1 or more in the state", least=1)

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> History | None:
        """Return the history of a state that counts batches, planned with the state's own options."""
        options = {name: state[name] for name in self.division_options() if name in state}
        try:
            self._rule_of(options)
        except TypeError as exc:
            missing = ", ".join(sorted(self.division_options().keys() - state.keys()))
            raise ValueError(f"the state lacks {missing}: expected the state of a {type(self).__name__}") from exc
        return self.checked(epoch, [{**options, "steps": batches}]) if batches else None

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next epoch."""
        return self.count(self._next[0])

    def __iter__(self) -> Iterator[list[int]]:
        self._forget()
        return self._lists()

    def _lists(self) -> Iterator[list[int]]:
        self._share.check_shared_once(self, _SHARED_TWICE)
        check_resumed_epoch(self, self._next[0])
        self._forget()
        iteration = self._iterations
        epoch, consumed = self._next
        self._handed_out = epoch, consumed, 0
        self._next = epoch + 1, None
        batches = self.plan(epoch, consumed)
        for number, part in enumerate(batches.slices()):
            if number == SURE_AFTER:
                self._agree(epoch, consumed)
            if iteration == self._iterations:
                self._handed_out = epoch, consumed, number + 1
            yield batches.indices[part].tolist()
        if len(batches) <= SURE_AFTER:
            self._agree(epoch, consumed)
        if iteration == self._iterations:
            self._handed_out = epoch + 1, None, 0

    def _agree(self, epoch: int, consumed: History | None) -> None:
        """Raise ValueError if another rank's sampler plans other samples, or began elsewhere."""
        if self._agreement is not None and self._agreement.is_open:
            self._agreement.compare({"epoch": epoch if self.shuffle else 0, "consumed": consumed or None})

    def _options(self) -> dict[str, Any]:
        return self.configuration() | self.division_options()

    def _forget(self) -> None:
        """Set the position to the start of the next iteration, whatever running iterations still hand out."""
        self._iterations += 1
        self._handed_out = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; setting the epoch of a loaded state keeps the position within it."""
        epoch = whole_epoch(epoch)
        if epoch != self._next[0]:
            if self._next[1]:
                log.warning(GIVEN_UP, type(self).__name__, epoch, self._next[0])
            self._next = epoch, None
            self._forget()

    def state_dict(self) -> dict[str, Any]:
        """
        Return the position of the latest iteration in plain values: what all ranks were handed of its epoch.

        The state is the same on every rank.
        """
        epoch, consumed, batches = self._handed_out or (*self._next, 0)
        consumed = self.advanced(epoch, consumed, batches)
        return {"version": _STATE_VERSION, "epoch": epoch, "consumed": consumed, **self.configuration()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Continue the next iteration there, with any number of ranks and batches of any size. Raises ValueError, naming
        the differences, for the state of another sampler, and TypeError for what is no dict.
        """
        state = as_state(state, owner="sampler", newest=_STATE_VERSION)
        counts_batches = state["version"] == 1
        check_state(state, self.configuration(), owner="sampler")
        epoch = whole_epoch(value_in(state, "epoch"))
        if counts_batches:
            batches = whole("batch", value_in(state, "batch"), "0 or more in the state", least=0)
            consumed = self.from_batches(state, epoch, batches)
        else:
            consumed = self.checked(epoch, value_in(state, "consumed"))
        self._next = epoch, consumed
        self._forget()

    def configuration(self) -> dict[str, Any]:
        """Return what must be equal for a history to mean the same samples."""
        return plain(
            {
                "sampler": type(self).__name__,
                "samples": len(self._lengths),
                "lengths_crc32": self._checksum,
                "seed": self.seed,
                "shuffle": self.shuffle,
            }
        )

    def division_options(self) -> dict[str, Any]:
        """Return how samples are divided among ranks and batches, which may change within an epoch."""
        return self._rule().to_json()

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the plan, which can be computed again; other processes ask no ranks."""
        return {**self.__dict__, "_planned": None, "_agreement": None}


def as_lengths(lengths: ArrayLike, name: str) -> NDArray[np.int32]:
    """Return numbers of tokens, one for each sample. Raises TypeError or ValueError, with the ``name``, for others."""
    array = np.asarray(lengths)
    if array.dtype == object and array.ndim == 0:
        raise TypeError(
            f"{name} are a {type(lengths).__name__}: expected integers, one per sample. Lightning puts its own "
            "sampler there: give the Trainer use_distributed_sampler=False, or use a FastDataModule"
        )
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(f"{name} are {array.dtype} {array.shape}: expected integers, one per sample")
    if array.size and not (array.min() >= 0 and array.max() <= _LONGEST):
        raise ValueError(f"{name} go from {array.min()} to {array.max()}: expected 0 to {_LONGEST}")
    return np.ascontiguousarray(array, np.int32)


# What all ranks have consumed of an epoch: the orders that were planned in it, one after the other, each of what the
# one before had left. An entry has the options of the rule that planned the order, and how many "samples" of it came
# (of shapes: of each); in states before version 3 how many "steps" by that rule, which then planned anew for each
# number of ranks.
History = list[dict[str, Any]]

_COUNTS = ("samples", "steps")
_STAGE_SEEDS = 0x9E3779B97F4A7C15  # odd, so that all stages of an epoch have different seeds


@dataclass(frozen=True, slots=True)
class Draws:
    """What the random numbers of a plan depend on. With ``epoch=None``, samples and steps come as they are stored."""

    seed: int
    epoch: int | None

    def of_stage(self, stage: int) -> Draws:
        """Return the draws for the ``stage``-th order of an epoch."""
        return replace(self, seed=(self.seed + stage * _STAGE_SEEDS) % (1 << 64))


class PlannedOrder(Protocol):
    """
    Samples in the order in which they come, whatever ranks share them. Their memory is reused: call ``left`` or
    ``batches``, once.
    """

    def steps(self, rule: Any, consumed: Any) -> Any:
        """
        Cut what comes after the first ``consumed`` samples into steps by a rule that goes on with this order.

        Return how many samples are consumed before each step and after the last, ``(steps + 1,)``: from ``consumed`` to
        all samples. The last step may have no batches, if it is left out. An order of which steps take no run counts
        otherwise: 0 is its beginning too, and what it returns has a list of ints under the number of each step.
        Raises ValueError if the order has fewer samples, or if it cannot be cut there.
        """
        ...

    def left(self, consumed: Any) -> NDArray[np.int64]:
        """Return the samples that come after so many, ascending. Raises ValueError as ``steps``."""
        ...

    def batches(self, rule: Any, rank: int, ends: Any) -> Batches:
        """Return one rank's batches of the steps that ``steps`` returned."""
        ...


class StepRule(Protocol):
    """How samples are brought into an order, and cut into steps: all that may change while an epoch is under way."""

    def to_json(self) -> dict[str, Any]: ...

    def order(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> PlannedOrder:
        """
        Plan the steps of ``samples`` (None: all), one after the other: a pure function. Raises ValueError if a sample
        is longer than a batch.
        """
        ...


def shuffled(count: int, draws: Draws) -> NDArray[np.int64]:
    """Return the numbers below ``count``, int64, in random order if there is an epoch."""
    numbers = np.arange(count, dtype=np.int64)
    if draws.epoch is not None:
        _native.shuffle(numbers, draws.seed, draws.epoch << 32)
    return numbers


def check_consumed(consumed: int, total: int) -> None:
    """Raise ValueError if an order of ``total`` samples has fewer than those that are consumed."""
    whole("samples", consumed, f"1 to {total} in the state", least=0, below=total + 1)


def even_steps(total: int, consumed: int, size: int) -> NDArray[np.int64]:
    """Return where steps of ``size`` samples end after ``consumed`` ones. Raises ValueError if these are too many."""
    check_consumed(consumed, total)
    return np.append(np.arange(consumed, total, size, dtype=np.int64), total)


def place_in(ends: NDArray[np.int64], consumed: int) -> int:
    """Return where ``consumed`` is among the ends, which ascend. Raises ValueError if it is not."""
    place = int(np.searchsorted(ends, consumed))
    if place == len(ends) or ends[place] != consumed:
        raise ValueError(f"samples={consumed}: expected a number up to {int(ends[-1])} at which steps end in the state")
    return place


def _options(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in _COUNTS}


def _consumed_of(order: PlannedOrder, rule: StepRule, entry: Mapping[str, Any]) -> Any:
    """Return how many samples of its order an entry has had. Raises ValueError for more steps than there are."""
    if "samples" in entry:
        return entry["samples"]
    ends = order.steps(rule, 0)
    batches = order.batches(rule, 0, ends)
    most = len(batches)
    steps = whole("steps", entry["steps"], f"1 to {most} in the state", least=1, below=most + 1)
    return _after(steps, _given(ends, batches))


def _given(ends: Any, batches: Batches) -> Any:
    """Return the ends of steps without what the last one leaves out, which stands at the end of the order."""
    return np.append(ends[:-1], ends[-1] - batches.dropped) if isinstance(ends, np.ndarray) else ends


def _after(steps: int, ends: Any) -> Any:
    """Return how many samples are consumed after so many steps."""
    consumed = ends[steps]
    return consumed if isinstance(consumed, list) else int(consumed)
