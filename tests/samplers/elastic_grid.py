"""
Every division to every other one, for every sampler: prints what was missing, doubled and unequal.

    python -m tests.samplers.elastic_grid                      all histories, on all CPUs
    python -m tests.samplers.elastic_grid --every 100 lanes    every 100th, for one sampler
"""

# ruff: noqa: T201 -- a command
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from time import perf_counter

from tests.samplers.elastic_cases import CASES, Rules
from tests.samplers.histories import Counts, Leg, grid, run, whole_epoch

SAMPLES = 1000
EPOCHS = 2
_CHUNK = 500


def counted(name: str, histories: Iterable[list[Leg]]) -> Counts:
    """Run histories of a sampler, in epochs 0 and 1 by turns."""
    case, total = CASES[name], Counts()
    build = case.of(Rules(SAMPLES))
    expected = [whole_epoch(build, epoch) for epoch in range(EPOCHS)]
    for number, legs in enumerate(histories):
        epoch = number % EPOCHS
        total.add(run(build, legs, epoch, expected[epoch], even=case.even))
    return total


def _part(name: str, seed: int, every: int, chunk: int) -> Counts:
    first = chunk * _CHUNK * every
    return counted(name, islice(grid(seed), first, first + _CHUNK * every, every))


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
    print(f"{'sampler':16}{'histories':>10}{'plans':>12}{'missing':>9}{'twice':>7}{'uneven':>8}{'miscounted':>12}")
    clean = True
    with ProcessPoolExecutor(options.processes) as pool:
        for name in options.samplers or CASES:
            began, total = perf_counter(), Counts()
            chunks = range(-(-histories // _CHUNK))
            parts = [pool.submit(_part, name, options.seed, options.every, chunk) for chunk in chunks]
            for part in parts:
                total.add(part.result())
            wrong = f"{total.missing:9}{total.doubled:7}{total.unequal:8}{total.miscounted:12}"
            seconds = f"{perf_counter() - began:.0f} s"
            print(f"{name:16}{total.histories:10,}{total.plans:12,}{wrong}   {seconds}", flush=True)
            for example in total.examples:
                print(f"    {example}")
            clean = clean and total.is_clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
