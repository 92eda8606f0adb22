"""
Run one start of a training on all of its ranks, in a peer's own environment.

    python -m benchmarks.elastic.start pack MODULE FOLDER SAMPLES
    python -m benchmarks.elastic.start load MODULE FOLDER LOADER WORLD BATCH STEPS

``load`` starts WORLD processes with gloo. They build the module's LOADER, load the state of the last start
(FOLDER/state.pt, if there is one) and take STEPS batches, or all that come (-1); rank 0 then saves its state. Prints
the numbers of each batch of each rank as JSON. The processes are forks of one that has imported torch and the peer.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests.forking import start_ranks, wait_for_ranks

__all__ = ["main"]

_TIMEOUT = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class _Start:
    """What all ranks of a start do."""

    peer: Any
    loader: str
    folder: Path
    world_size: int
    batch_size: int
    steps: int


def _be_rank(start: _Start, rank: int) -> None:
    folder = start.folder
    distributed.init_process_group("gloo", timeout=_TIMEOUT)
    loader = getattr(start.peer, start.loader)(folder, start.batch_size)
    saved = folder / "state.pt"
    if saved.exists():
        loader.load_state_dict(torch.load(saved, weights_only=False))
    distributed.barrier()  # all have read the state
    batches = [start.peer.numbers(batch) for batch in islice(loader, None if start.steps < 0 else start.steps)]
    if rank == 0:
        torch.save(loader.state_dict(), saved)
    (folder / f"rank-{rank}.json").write_text(json.dumps(batches))
    distributed.barrier()


def main() -> None:
    """Print one line of JSON."""
    action, module, name, *rest = sys.argv[1:]
    folder, peer = Path(name), import_module(f"benchmarks.elastic.{module}")
    if action == "pack":
        folder.mkdir(parents=True)
        peer.pack(folder, int(rest[0]))
        print(json.dumps({"samples": int(rest[0])}))
        return
    torch.set_num_threads(1)
    start = _Start(peer, rest[0], folder, *map(int, rest[1:]))
    statuses = wait_for_ranks(start_ranks(partial(_be_rank, start), start.world_size))
    if any(statuses):
        sys.exit(f"exit statuses of the ranks: {statuses}")
    ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(start.world_size)]
    print(json.dumps({"ranks": ranks}))


if __name__ == "__main__":
    main()
