"""
Every division to every other one, for every sampler: prints what was missing, doubled and unequal.

    python -m tests.samplers.elastic_grid                      all histories, on all CPUs
    python -m tests.samplers.elastic_grid --every 100 lanes    every 100th, for one sampler
"""

# ruff: noqa: T201 -- a command
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import islice
from multiprocessing import get_context
from time import process_time
from typing import Any

from fastio.samplers.batches import Batches, ElasticSampler
from tests.samplers.elastic_cases import CASES, Rules, whole_epoch
from tests.samplers.histories import Counts, Leg, grid, run

SAMPLES = 1000
EPOCH = 1


class KeptPlans:
    """A sampler that keeps its plans: in the grid, many histories go through the same place."""

    def __init__(self, sampler: ElasticSampler) -> None:
        self.count, self.advanced, self.checked = sampler.count, sampler.advanced, sampler.checked
        self._plan = sampler.plan
        self._plans: dict[tuple[int, str], Batches] = {}

    def plan(self, epoch: int, consumed: Any = None) -> Batches:
        """Return the plan without its windows."""
        key = epoch, json.dumps(consumed)
        if key not in self._plans:
            if len(self._plans) > SAMPLES:
                self._plans.clear()
            self._plans[key] = replace(self._plan(epoch, consumed), windows=None)
        return self._plans[key]


def counted(name: str, histories: Iterable[list[Leg]]) -> Counts:
    """Run histories of a sampler."""
    case, total = CASES[name], Counts()
    build = case.of(Rules(SAMPLES))
    kept = cache(lambda world_size, batch_size, rank: KeptPlans(build(Leg(world_size, batch_size), rank)))
    expected = whole_epoch(name, Rules(SAMPLES), EPOCH)
    for legs in histories:
        total.add(run(lambda leg, rank: kept(*leg[:2], rank), legs, EPOCH, expected, even=case.even))
    return total


def _counted(name: str, seed: int, every: int) -> tuple[Counts, float]:
    began = process_time()
    counts = counted(name, islice(grid(seed), 0, None, every))
    return counts, process_time() - began


def main() -> int:
    """Print one line per sampler; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samplers", nargs="*", choices=[[], *CASES], help="default: all")
    parser.add_argument("--every", type=int, default=1, help="take every Nth history only")
    parser.add_argument("--seed", type=int, default=0, help="of the divisions after the second")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    histories = sum(1 for _ in islice(grid(options.seed), 0, None, options.every))
    print(f"{SAMPLES} samples, {histories:,} histories of three resumes per sampler, seed {options.seed}")
    columns = f"{'missing':>9}{'twice':>7}{'uneven':>8}{'miscounted':>12}{'CPU seconds':>13}"
    print(f"{'sampler':16}{'histories':>10}{'plans':>12}{columns}")
    clean = True
    names = options.samplers or list(CASES)
    with ProcessPoolExecutor(options.processes, get_context("fork")) as pool:
        running = [pool.submit(_counted, name, options.seed, options.every) for name in names]
        for name, counts in zip(names, running, strict=True):
            total, seconds = counts.result()
            wrong = f"{total.missing:9}{total.doubled:7}{total.unequal:8}{total.miscounted:12}"
            print(f"{name:16}{total.histories:10,}{total.plans:12,}{wrong}{seconds:13.0f}", flush=True)
            for example in total.examples:
                print(f"    {example}")
            clean = clean and total.is_clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
