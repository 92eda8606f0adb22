"""What StepTimer costs: ``python -m benchmarks.step_timer`` prints CPU time a step, with the host's clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from itertools import repeat
from typing import Any

from fastio import StepTimer

STEPS = 100_000
ROUNDS = 7


def main() -> None:
    """Interleaved rounds of an empty loop with and without the timer; the difference is its cost."""
    batch = ([0] * 8, [0] * 8)
    costs = []
    for _ in range(ROUNDS):
        plain = _cpu_s(repeat(batch, STEPS))
        costs.append((_cpu_s(StepTimer()(repeat(batch, STEPS))) - plain) / STEPS * 1e6)
    print(
        f"StepTimer: {statistics.median(costs):.2f} us of CPU a step "
        f"({min(costs):.2f} to {max(costs):.2f}, {ROUNDS} rounds of {STEPS:,} steps)"
    )


def _cpu_s(loader: Iterable[Any]) -> float:
    begun = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - begun


if __name__ == "__main__":
    main()
