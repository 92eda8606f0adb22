"""What all ranks have consumed of an epoch that is planned step by step, and the plan of what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.position import whole

__all__ = [
    "BegunEpoch",
    "Draws",
    "History",
    "PlannedSteps",
    "StepRule",
    "checked_history",
    "continued",
    "shuffled",
]

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
