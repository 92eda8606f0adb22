"""The base of samplers that plan whole epochs, and what ranks have consumed of a plan."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

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
    "shuffled",
]


log = logging.getLogger(__name__)

# Version 1 counted the batches of one rank; only the ranks and batches of that time could go on from it.
_STATE_VERSION = 2
_LONGEST = (1 << 31) - 1
_SHARED_TWICE = "give it rank=0, world_size=1, or take the loader from fastio.integrations.accelerate.prepare_loader"


class PlannedSampler(ABC):
    """
    A ``batch_sampler`` for torch's DataLoader: yields each batch as a list of ints.

    This is a base class, against the rule of this code base: torch and its users expect the six methods below on the
    sampler itself, and two samplers would repeat them. Each iteration is one epoch; ``set_epoch`` sets its number, as
    with FastLoader. The position counts the batches handed out. A DataLoader with workers asks for some of them
    ahead; FastLoader's own ``state_dict`` does not count those.

    An epoch may be continued under another rule, with another number of ranks for example (see ``ElasticSampler``);
    ``consumed`` is a ``History``.
    """

    seed: int
    shuffle: bool

    def __init__(self, lengths: ArrayLike, ranks: Ranks) -> None:
        self._lengths = as_lengths(lengths, "lengths")
        self._share = ranks.share()
        self.rank, self.world_size = self._share.rank, self._share.world_size
        self._agreement: Agreement | None = Agreement(self._share, f"this {type(self).__name__}", self._options)
        self._checksum = _native.crc32(self._lengths)
        self._next: tuple[int, History | None] = (0, None)  # epoch, and what was consumed of it before
        self._handed_out: tuple[int, History | None, int] | None = None  # the same, and the batches since
        self._iterations = 0  # older iterations no longer count
        self._planned: tuple[Any, Batches] | None = None

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
        rule = self._rule()
        key = epoch, consumed or [], rule
        planned = self._planned  # once: another thread may plan another epoch
        if planned is None or planned[0] != key:
            draws = Draws(int(self.seed), epoch if self.shuffle else None)
            rest = BegunEpoch(self._units(epoch), draws, consumed or [])
            units = rest.plan(rule, self.rank, self._rule_of)
            planned = self._planned = key, self._samples_of(units, epoch)
        return planned[1]

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
        return continued(consumed, self._rule(), batches)

    def checked(self, epoch: int, consumed: Any) -> History | None:
        """Return the history of a state. Raises ValueError if it cannot be one of this epoch."""
        if not consumed and consumed in (None, []):
            return None
        if not isinstance(consumed, list) or not all(isinstance(entry, Mapping) for entry in consumed):
            raise ValueError(f"consumed={consumed!r}: expected a list of divisions with their steps in the state")
        self._share.check_ranks(f"this {type(self).__name__}")  # not the state's fault
        try:
            history = checked_history(consumed, self._rule_of)
            self.plan(epoch, history)
        except ValueError as exc:
            raise ValueError(f"consumed={consumed!r}: is damaged: {exc}") from exc
        return history

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
        Continue the next iteration there, with any number of ranks and batches of any size: what is left of the epoch
        is planned anew if they have changed. Raises ValueError, naming the differences, for the state of another
        sampler, and TypeError for what is no dict.
        """
        state = as_state(state, owner="sampler", newest=_STATE_VERSION)
        counts_batches = state["version"] == 1
        known = {**state, "version": _STATE_VERSION} if counts_batches else state
        check_state(known, {"version": _STATE_VERSION, **self.configuration()}, owner="sampler")
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


# What all ranks have consumed of an epoch that is planned step by step, and the plan of what is left.

# The divisions under which an epoch ran, in turn: the options of a rule and "steps", the number of steps consumed
# under it. Each rule but the first has planned what the ones before it had left.
History = list[dict[str, Any]]

_MOST_STEPS = 1 << 40
_STAGE_SEEDS = 0x9E3779B97F4A7C15  # odd, so that all stages of an epoch have different seeds


@dataclass(frozen=True, slots=True)
class Draws:
    """What the random numbers of a plan depend on. With ``epoch=None``, samples and steps come as they are stored."""

    seed: int
    epoch: int | None

    def of_stage(self, stage: int) -> Draws:
        """Return the draws for the ``stage``-th division of an epoch."""
        return replace(self, seed=(self.seed + stage * _STAGE_SEEDS) % (1 << 64))


class PlannedSteps(Protocol):
    """Samples cut into steps, for all ranks. Their memory is reused: call ``left`` or ``batches``, once."""

    def __len__(self) -> int: ...

    def left(self, steps: int) -> NDArray[np.int64]:
        """Return the samples, ascending, that the first ``steps`` of these steps do not have."""
        ...

    def batches(self, rank: int) -> Batches:
        """Return one rank's batches of all steps."""
        ...


class StepRule(Protocol):
    """How samples are cut into steps and shared out: all that may change while an epoch is under way."""

    def to_json(self) -> dict[str, Any]: ...

    def steps(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> PlannedSteps:
        """
        Cut ``samples`` (None: all) into steps: a pure function. Raises ValueError if one is longer than a batch.
        """
        ...


@dataclass(frozen=True, slots=True)
class BegunEpoch:
    """An epoch of samples of these lengths, of which ``history`` has been consumed."""

    lengths: NDArray[np.int32]
    draws: Draws
    history: History

    def plan(self, rule: StepRule, rank: int, rule_of: Callable[[Mapping[str, Any]], StepRule]) -> Batches:
        """
        Return one rank's batches of what is left, divided by ``rule``; ``rule_of`` makes the rules of the history.

        If ``rule`` is the latest of the history, its steps go on as they would have without a stop. Raises ValueError
        if the history has more steps than its rules give.
        """
        own = rule.to_json()
        is_same = bool(self.history) and _options(self.history[-1]) == own
        past = self.history[:-1] if is_same else self.history
        left: NDArray[np.int64] | None = None
        for stage, entry in enumerate(past):
            steps = rule_of(_options(entry)).steps(self.lengths, left, self.draws.of_stage(stage))
            left = steps.left(_had(entry, len(steps)))
        steps = rule.steps(self.lengths, left, self.draws.of_stage(len(past)))
        return steps.batches(rank).after(_had(self.history[-1], len(steps)) if is_same else 0)


def checked_history(entries: Sequence[Mapping[str, Any]], rule_of: Callable[[Mapping[str, Any]], StepRule]) -> History:
    """Return the history of a state, in plain values. Raises ValueError if it is damaged."""
    try:
        return [{**rule_of(_options(entry)).to_json(), "steps": _had(entry)} for entry in entries]
    except TypeError as exc:  # an option is missing, or unknown
        raise ValueError(str(exc)) from exc


def continued(history: History | None, rule: StepRule, steps: int) -> History | None:
    """Return the history after so many more steps of a rule; None while nothing has been consumed."""
    past, own = history or [], rule.to_json()
    if steps == 0:
        return history
    if past and _options(past[-1]) == own:
        return [*past[:-1], {**own, "steps": past[-1]["steps"] + steps}]
    return [*past, {**own, "steps": steps}]


def shuffled(count: int, draws: Draws) -> NDArray[np.int64]:
    """Return the numbers below ``count``, int64, in random order if there is an epoch."""
    numbers = np.arange(count, dtype=np.int64)
    if draws.epoch is not None:
        _native.shuffle(numbers, draws.seed, draws.epoch << 32)
    return numbers


def _options(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "steps"}


def _had(entry: Mapping[str, Any], count: int = _MOST_STEPS) -> int:
    return whole("steps", entry.get("steps"), f"1 to {count} in the state", least=1, below=count + 1)
