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
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed

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
    port: int


def _rank(start: _Start, rank: int) -> None:
    """Be one rank; never returns."""
    status = 1
    world_size, folder = start.world_size, start.folder
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": start.port}
    os.environ.update({name: str(value) for name, value in {**ranks, **meeting}.items()})
    try:
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
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        start = _Start(peer, rest[0], folder, *map(int, rest[1:]), free.getsockname()[1])
    processes = []
    for rank in range(start.world_size):
        process = os.fork()
        if process == 0:
            _rank(start, rank)
        processes.append(process)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    if any(statuses):
        sys.exit(f"exit statuses of the ranks: {statuses}")
    print(
        json.dumps(
            {"ranks": [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(len(processes))]}
        )
    )


if __name__ == "__main__":
    main()
