"""tune: the best setting of a loader on this machine, found in seconds by giving time to those that do well."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastio.measure.grid import Repeat, measure_point
from fastio.measure.points import GridData, Point, Value

__all__ = ["Tuned", "candidates", "tune"]

# Settings this close to the best one count as equal, and the cheapest of them is taken.
_AS_GOOD = 0.03
# Each round goes through its points so often, so that a busy moment of the machine does not decide.
_PASSES = 3
_LONGEST_SLICE_S = 1.0


@dataclass(frozen=True, slots=True)
class Tuned:
    """
    The point chosen, its code, and every point tried with its best measurement, fastest first.

    ``is_complete`` is False where the time was over before the last rounds.
    """

    point: Point
    code: str
    samples_per_s: float
    tried: tuple[tuple[Point, Repeat], ...]
    seconds: float
    is_complete: bool


def candidates(data: GridData) -> list[Point]:
    """The points among which to choose: nothing that changes the samples, and workers that stay."""
    values: dict[str, tuple[Value, ...]] = {
        name: allowed for name, allowed in data.values().items() if name not in ("shuffle", "drop_last", "non_blocking")
    }
    for name in ("persistent_workers", "pin_memory"):
        if name in values:
            values[name] = (True,)
    return data.points(values)


def tune(data: GridData, points: Sequence[Point], *, seconds: float, progress: Callable[[int, int], None]) -> Tuned:
    """
    Measure all points, then the better half for longer, and so on until two are left; each round takes the same time.

    A point counts by its best measurement: others on the machine only make it slower. Begins nothing that would not
    end within ``seconds``. ``progress`` is called with the measurements done, and those with what the round has left.
    """
    begun = time.perf_counter()
    best: dict[Point, Repeat] = {}
    left, done, is_complete = list(points), 0, True
    rounds = _rounds(len(points))
    for count in rounds:
        left = left[:count]
        slice_s = min(_LONGEST_SLICE_S, seconds / len(rounds) / (_PASSES * count))
        for position, point in enumerate(left * _PASSES, 1):
            if best and time.perf_counter() - begun + slice_s > seconds:
                is_complete = False
                break
            seen = measure_point(data, point, seconds=slice_s, step=_discard)
            best[point] = max(best.get(point, seen), seen, key=_rate)
            done += 1
            progress(done, done + _PASSES * count - position)
        left = sorted((point for point in left if point in best), key=lambda point: -_rate(best[point]))
    good = [point for point in left if _rate(best[point]) >= (1 - _AS_GOOD) * _rate(best[left[0]])]
    chosen = min(good, key=lambda point: point.cost)
    tried = sorted(best.items(), key=lambda pair: -_rate(pair[1]))
    passed = time.perf_counter() - begun
    return Tuned(chosen, data.code(chosen), _rate(best[chosen]), tuple(tried), passed, is_complete)


def _rounds(points: int) -> list[int]:
    """How many points each round has: all, half of them, and so on to two."""
    found = [points]
    while found[-1] > 2:
        found.append(max(2, found[-1] // 2))
    return found


def _rate(seen: Repeat) -> float:
    return seen.samples_per_s


def _discard(batch: object) -> None:
    """The step of a loader's limit: none."""
