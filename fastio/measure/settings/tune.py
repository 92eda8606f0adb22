"""tune: finds the best setting of a loader on this machine, in seconds, by a race."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import truediv
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.errors import FastioError
from fastio.measure.loop.batch import move, next_batch, sample_count
from fastio.measure.settings.points import GridData, Point, Value

__all__ = [
    "Race",
    "Tried",
    "Tuned",
    "candidates",
    "loading_rate",
    "tune",
]


# Settings this close to the best one count as equal, and the cheapest of them wins.
_AS_GOOD = 0.03
_MOST_ROUNDS = 15
_ENOUGH_ROUNDS = 5
_SLICE_S = (0.25, 1.0)  # shortest and longest: a shorter one measures only a burst of another program


@dataclass(frozen=True, slots=True)
class Tried:
    """
    A point, its rate, and in how many rounds it was measured.

    The rate is the chosen point's median, times the median ratio of this point to it in the rounds that both ran:
    rounds differ on a shared machine, and points that drop out early have run in other rounds.
    """

    point: Point
    samples_per_s: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """
    The chosen point, code that builds its loader, and every point tried, longest-lasting first.

    ``is_complete`` is False if time ran out before the good ones had run in five rounds.
    """

    point: Point
    code: str
    samples_per_s: float
    tried: tuple[Tried, ...]
    seconds: float
    is_complete: bool


def candidates(data: GridData) -> list[Point]:
    """Return the points to choose from: none that changes the samples, and only persistent workers."""
    values: dict[str, tuple[Value, ...]] = {
        name: allowed for name, allowed in data.values().items() if name not in ("shuffle", "drop_last", "non_blocking")
    }
    for name in ("persistent_workers", "pin_memory"):
        if name in values:
            values[name] = (True,)
    return data.points(values)


def tune(data: GridData, points: Sequence[Point], *, seconds: float, progress: Callable[[int, int], None]) -> Tuned:
    """
    Run all points in rounds, forwards and backwards, until ``seconds`` have passed or 15 rounds are done.

    Points that fall behind drop out, so the best ones meet again and again. Of those within 3 % of the best, the
    cheapest wins. A round only starts if it can end in time; the first one always does, and points it does not reach
    in time are not tried. ``progress`` is called with rounds done and rounds to do.
    """
    begun = time.perf_counter()
    race = Race(list(points))
    round_s = 0.0
    while race.rounds < _MOST_ROUNDS and len(race.left) > (1 if race.rounds else 0):
        left_s = begun + seconds - time.perf_counter()
        if race.rounds and left_s < round_s * len(race.left) / len(points):
            break
        share_s = max(0.0, left_s) / (_MOST_ROUNDS - race.rounds) / len(race.left)
        slice_s = min(max(share_s, min(_SLICE_S[0], seconds / len(race.left))), _SLICE_S[1])
        before = time.perf_counter()
        rates = _round(data, race, slice_s, latest=begun + seconds)
        if len(rates) < len(race.left):
            if race.rounds:
                break
            race.left = list(rates)
        round_s = (time.perf_counter() - before) * len(points) / len(race.left)
        race.add([rates[point] for point in race.left])
        progress(race.rounds, _MOST_ROUNDS)
    good = [point for point, ratio in race.ratios().items() if ratio >= 1 - _AS_GOOD]
    chosen = min(good, key=lambda point: point.cost)
    rates_of = race.rates()
    best = rates_of[chosen]
    tried = [
        Tried(point, statistics.median(best) * statistics.median(map(truediv, rates, best)), len(rates))
        for point, rates in rates_of.items()
    ]
    tried.sort(key=lambda point: (-point.rounds, -point.samples_per_s))
    return Tuned(
        point=chosen,
        code=data.code(chosen),
        samples_per_s=statistics.median(best),
        tried=tuple(tried),
        seconds=time.perf_counter() - begun,
        is_complete=len(tried) == len(points) and (len(race.left) == 1 or race.rounds >= _ENOUGH_ROUNDS),
    )


def _round(data: GridData, race: Race[Point], slice_s: float, *, latest: float) -> dict[Point, float]:
    """
    Measure everyone's rate, in this order or from the end: a trend in the machine's speed cancels out.

    Points that do not get their turn before ``latest`` are left out, except the first one.
    """
    rates: dict[Point, float] = {}
    for point in reversed(race.left) if race.rounds % 2 == 1 else race.left:
        if rates and time.perf_counter() >= latest:
            break
        rates[point] = loading_rate(data, point, seconds=slice_s, latest=latest)
    return rates


def loading_rate(data: GridData, point: Point, *, seconds: float, latest: float = math.inf) -> float:
    """
    Return the samples per second of wall time that the point's loader gives to a loop that does nothing else.

    Batches already in progress at the start do not count; then it runs for ``seconds``, for at least as many batches
    as are in progress, and on into further epochs. Once ``time.perf_counter()`` reaches ``latest``, one more batch is
    enough. Raises FastioError if the data holds no batch.
    """
    together = max(1, min(point.cost[0], point.batches_ahead))
    device = "cuda" if torch.cuda.is_available() else None
    samples = 0
    with data.loader(point) as loader:
        begun, is_counting = 0.0, False
        for number, batch in enumerate(_endless(loader, data.name), 1):
            if is_counting:
                samples += sample_count(batch)
                if device is not None:
                    move(batch, device, non_blocking=bool(point.get("non_blocking", False)))
            # In whole turns of all workers: their batches arrive together.
            now = time.perf_counter()
            if number % together and now < latest:
                continue
            if not is_counting:
                begun, is_counting = now, True
            elif now >= min(begun + seconds, latest):
                break
        return samples / (time.perf_counter() - begun)


def _endless(loader: Iterable[Any], name: str) -> Iterator[Any]:
    """Yield batches epoch after epoch; none is kept here."""
    while True:
        batches = iter(loader)
        held = next_batch(batches)
        if not held:
            raise FastioError(f"{name}: the loader gave no batch: nothing to measure")
        while held:
            yield held.pop()
            held = next_batch(batches)


# A race: finds the fastest of several things, in rounds, on a machine that others use too.

T = TypeVar("T")

# How far below the leader's rate a runner may be and stay, after so many rounds; later rounds use the last value. On
# two cores shared with eight other programs, rates within one round differed by a factor of two for no other reason.
_TOLERANCES = (0.70, 0.50, 0.40, 0.25, 0.25, 0.15, 0.15, 0.08)
# Up to this round, a runner is judged by its best round: a slow one may have been anybody's fault.
_ROUNDS_OF_GRACE = 3


@dataclass
class Race(Generic[T]):
    """
    Runners, and the rates of each round, in which everyone left ran once.

    A slow phase of the machine slows a whole round down, so a rate counts relative to the round's median, and a
    runner by the median of its rounds. After each round, those too far behind drop out.
    """

    left: list[T]
    _rounds: list[dict[T, float]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return len(self._rounds)

    def add(self, rates: Sequence[float]) -> None:
        """Add a round: the rates of those that are left, in their order; each above 0."""
        self._rounds.append(dict(zip(self.left, rates, strict=True)))
        scores = self._scores()
        least = np.median(scores, axis=0).max() + math.log(1 - _TOLERANCES[min(self.rounds, len(_TOLERANCES)) - 1])
        judged = scores.max(axis=0) if self.rounds <= _ROUNDS_OF_GRACE else np.median(scores, axis=0)
        self.left = [runner for runner, score in zip(self.left, judged, strict=True) if score >= least]

    def ratios(self) -> dict[T, float]:
        """Return those that are left, best first, with their rates relative to the best."""
        scores = np.median(self._scores(), axis=0)
        ratios = dict(zip(self.left, np.exp(scores - scores.max()).tolist(), strict=True))
        return dict(sorted(ratios.items(), key=lambda pair: -pair[1]))

    def rates(self) -> dict[T, list[float]]:
        """Return everyone's rates in the rounds that they ran."""
        return {runner: [run[runner] for run in self._rounds if runner in run] for runner in self._rounds[0]}

    def _scores(self) -> NDArray[np.float64]:
        """Return (rounds, left): logarithms of the ratios to the median of those that are left, round by round."""
        logs = np.log([[run[runner] for runner in self.left] for run in self._rounds])
        return np.asarray(logs - np.median(logs, axis=1, keepdims=True))
