"""What StepTimer costs: ``python -m benchmarks.step_timer`` prints CPU time a step, with the host's clock."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

from fastio import StepTimer
from fastio.measure.trackers import CSV, Figures

STEPS = 100_000
ROUNDS = 7
WRITES = 2000


class Nothing:
    """A tracker that keeps the latest figures only."""

    latest: Figures

    def write(self, figures: Figures) -> None:
        self.latest = figures

    def close(self) -> None:
        pass


def main() -> None:
    """
    Interleaved rounds of an empty loop with and without a timer, whose difference is the cost for the loop's thread;
    and of rows of CSV, which a tracker's own thread writes.
    """
    batch = ([0] * 8, [0] * 8)
    timers: dict[str, Callable[[], StepTimer]] = {
        "StepTimer": StepTimer,
        "StepTimer with a tracker, every 50 steps": lambda: StepTimer(trackers=[Nothing()]),
    }
    costs: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        plain = _cpu_s(repeat(batch, STEPS))
        for name, make in timers.items():
            timer = make()
            costs[name].append((_cpu_s(timer(repeat(batch, STEPS))) - plain) / STEPS)
            timer.close()
    for name, seconds in costs.items():
        print(f"{name}: {_in_words(seconds)} of CPU a step, in {ROUNDS} rounds of {STEPS:,} steps")
    print(
        f"one row of CSV: {_in_words([_row_s() for _ in range(ROUNDS)])} of CPU, in {ROUNDS} rounds of {WRITES:,} rows"
    )


def _cpu_s(loader: Iterable[Any]) -> float:
    begun = time.thread_time()
    for _ in loader:
        pass
    return time.thread_time() - begun


def _row_s() -> float:
    tracker = Nothing()
    with_figures = StepTimer(trackers=[tracker])
    for _ in with_figures([[0]] * 50):
        pass
    with_figures.close()
    with tempfile.TemporaryDirectory() as folder:
        table = CSV(Path(folder) / "steps.csv")
        begun = time.thread_time()
        for _ in range(WRITES):
            table.write(tracker.latest)
        table.close()
        return (time.thread_time() - begun) / WRITES


def _in_words(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:.2f} us ({min(seconds) * 1e6:.2f} to {max(seconds) * 1e6:.2f})"


if __name__ == "__main__":
    main()
