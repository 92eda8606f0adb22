"""
Starts an example on several ranks as torchrun does, one start after the other.

    python -m tests.examples.start_ranks torchrun.py photos.lmdb 2:--stop 3:

starts two processes with ``--stop``, then three without it. All are forks of one that has imported torch.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel  # noqa: F401 - for all forks

from fastio import FastDataset, FastLoader
from tests.forking import start_ranks, wait_for_ranks

EXAMPLES = Path(__file__).parents[2] / "fastio" / "guide" / "examples"
SMALL = ("--epochs", "1", "--batch-size", "2", "--every", "2")


def run_start(name: str, store: str, world_size: int, words: list[str]) -> bool:
    """Run one start on so many ranks, and return whether all of them succeeded."""

    def run_script(_rank: int) -> None:
        sys.argv = [name, store, *SMALL, *words]
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    return not any(wait_for_ranks(start_ranks(run_script, world_size)))


def import_once(store: str) -> None:
    """Import what a training needs, much of which is imported on first use, before there are forks."""
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    with FastLoader(FastDataset(store), 1, rank=0, world_size=1, threads=1) as loader:
        len(loader)


if __name__ == "__main__":
    torch.set_num_threads(1)
    import_once(sys.argv[2])
    for begin in sys.argv[3:]:
        size, _, more = begin.partition(":")
        if not run_start(sys.argv[1], sys.argv[2], int(size), more.split()):
            sys.exit(1)
