"""
Starts an example on several ranks as torchrun does, one start after the other.

    python -m tests.examples.start_ranks torchrun.py photos.lmdb 2:--stop 3:

starts two processes with ``--stop``, then three without it. All are forks of one that has imported torch.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel  # noqa: F401 - for all forks

from fastio import FastDataset, FastLoader

EXAMPLES = Path(__file__).parents[2] / "fastio" / "guide" / "examples"
SMALL = ("--epochs", "1", "--batch-size", "2", "--every", "2")


def start(name: str, store: str, world_size: int, words: list[str]) -> int:
    """Run one start, and return how many of its processes failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), WORLD_SIZE=str(world_size))
    processes = []
    for rank in range(world_size):
        process = os.fork()
        if process == 0:
            _be_rank(rank, name, store, *SMALL, *words)
        processes.append(process)
    return sum(os.waitpid(process, 0)[1] != 0 for process in processes)


def _be_rank(rank: int, name: str, *words: str) -> None:
    """Run the script as this rank; never returns."""
    status = 1
    try:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        sys.argv = [name, *words]
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


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
        if start(sys.argv[1], sys.argv[2], int(size), more.split()):
            sys.exit(1)
