"""The table of loading and training time for every setting of a loader, repeated; hopeless rows are dropped early."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fastio.measure.loop.batch import limited, move
from fastio.measure.loop.step_timer import StepTimer
from fastio.measure.settings.points import GridData, Point

__all__ = ["GridRow", "Repeat", "measure_point", "run_grid"]

# A row whose step takes this many times as long as the best one's is not repeated.
_HOPELESS = 1.5
_LEAST_STEPS = 4


@dataclass(frozen=True, slots=True)
class Repeat:
    """
    One measurement of one point.

    ``start_s`` is the wait for the first batch of an epoch. ``loading_s``, the wait per step, includes its share of
    ``start_s``, as if that were spread over the steps of a whole epoch.
    """

    loading_s: float
    training_s: float
    start_s: float
    samples_per_s: float

    @property
    def step_s(self) -> float:
        """Loading and training of a step."""
        return self.loading_s + self.training_s


@dataclass(frozen=True, slots=True)
class GridRow:
    """All measurements of one point; with ``stopped_early``, fewer than asked for, because it was hopeless."""

    point: Point
    repeats: tuple[Repeat, ...]
    stopped_early: bool

    def median(self, name: str) -> float:
        """Return the median of one figure over the repeats."""
        return float(statistics.median(getattr(repeat, name) for repeat in self.repeats))

    def spread(self, name: str) -> tuple[float, float]:
        """Return the smallest and the largest value of one figure."""
        values = [getattr(repeat, name) for repeat in self.repeats]
        return min(values), max(values)


def run_grid(
    points: Sequence[tuple[GridData, Point]],
    *,
    repeats: int,
    seconds: float,
    step: Callable[[Any], Any],
    progress: Callable[[int, int], None],
) -> list[GridRow]:
    """
    Measure all points in interleaved rounds of about ``seconds`` each, and sort them by loading time.

    A point whose step takes more than 1.5 times that of the best one so far gets no further round. ``progress`` is
    called after each measurement, or in its place, with the count done and the total.
    """
    repeats_of: list[list[Repeat]] = [[] for _ in points]
    for number in range(repeats):
        for position, ((data, point), earlier) in enumerate(zip(points, repeats_of, strict=True), 1):
            if not _is_hopeless(earlier, repeats_of):
                earlier.append(measure_point(data, point, seconds=seconds, step=step))
            progress(number * len(points) + position, repeats * len(points))
    rows = [
        GridRow(point, tuple(measured), stopped_early=len(measured) < repeats)
        for (_, point), measured in zip(points, repeats_of, strict=True)
    ]
    return sorted(rows, key=lambda row: row.median("loading_s"))


def measure_point(data: GridData, point: Point, *, seconds: float, step: Callable[[Any], Any]) -> Repeat:
    """
    Run the point's loader for about ``seconds`` and at least two epochs, or as much of them as it prefetches.

    After twice as long, and at least a second, one batch of each of the two is enough.
    """
    timer = StepTimer()
    device = "cuda" if torch.cuda.is_available() else None
    non_blocking = bool(point.get("non_blocking", False))
    least = max(_LEAST_STEPS, point.batches_ahead + 2)
    starts: list[float] = []
    begun = time.perf_counter()
    with data.loader(point) as loader:
        # At least two epochs: the start of the second one shows the cost of workers that end with an epoch.
        while len(starts) < 2 or time.perf_counter() < begun + seconds:
            ends = begun + (seconds if starts else seconds / 2)
            for batch in timer(limited(loader, ends=ends, least=least, latest=begun + max(2 * seconds, 1.0))):
                step(batch if device is None else move(batch, device, non_blocking=non_blocking))
            starts.append(timer.summary().first_batches_s)
    summary = timer.summary()
    start_s = (starts[-1] - starts[0]) / (len(starts) - 1)
    loading_s = summary.loading.mean_s + start_s / data.batches
    step_s = loading_s + summary.training.mean_s
    return Repeat(loading_s, summary.training.mean_s, start_s, samples_per_s=summary.samples / summary.steps / step_s)


def _is_hopeless(repeats: Sequence[Repeat], every: Sequence[Sequence[Repeat]]) -> bool:
    if not repeats:
        return False
    best = min(repeat.step_s for row in every for repeat in row)
    return min(repeat.step_s for repeat in repeats) > _HOPELESS * best
