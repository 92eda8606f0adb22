"""
Run the starts of trainings on all of their ranks, in a peer's own environment.

    python -m benchmarks.elastic.start MODULE FOLDER LOADER SAMPLES MOVES

packs SAMPLES numbers into FOLDER, and makes MOVES, a JSON list of lists of starts, each ``[ranks, batch size, steps]``.
A start is so many processes, which build the module's LOADER, load the state of the start before and take so many
batches, or all that come (-1). The state that all load is rank 0's; where a module says OWN_STATES, each rank loads its
own, and a rank that is new that of rank 0. Prints for each move the numbers of each batch of each rank of each start as
JSON, and what the module's ``proof`` says of the epoch in the end, if it has one; or why it failed. The processes are
forks of one that has imported the peer; they meet over gloo unless a module says PROCESS_GROUP = False.
"""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

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

    @property
    def has_own_states(self) -> bool:
        """Whether each rank saves and loads a state of its own."""
        return getattr(self.peer, "OWN_STATES", False)

    @property
    def is_group(self) -> bool:
        """Whether the ranks are a process group of torch."""
        return getattr(self.peer, "PROCESS_GROUP", True)

    def state_of(self, rank: int) -> Path:
        """Return the file with the state that a rank loads."""
        own = self.folder / f"state-{rank if self.has_own_states else 0}"
        return own if own.exists() else self.folder / "state-0"


def _be_rank(start: _Start, rank: int) -> None:
    folder = start.folder
    if start.is_group:
        from torch import distributed

        distributed.init_process_group("gloo", timeout=_TIMEOUT)
    loader = getattr(start.peer, start.loader)(folder, start.batch_size)
    saved = start.state_of(rank)
    if saved.exists():
        loader.load_state_dict(pickle.loads(saved.read_bytes()))
    batches = [start.peer.numbers(batch) for batch in islice(loader, None if start.steps < 0 else start.steps)]
    # Before the state, which then has what all ranks have told.
    proof = start.peer.proof(loader) if hasattr(start.peer, "proof") else None
    if rank == 0 or start.has_own_states:
        (folder / f"new-{rank}").write_bytes(pickle.dumps(loader.state_dict()))
    (folder / f"rank-{rank}.json").write_text(json.dumps({"batches": batches, "proof": proof}))
    if start.is_group:
        distributed.barrier()


def _run(start: _Start) -> list[dict[str, Any]]:
    """Return what each rank of a start says; RuntimeError if one of them fails."""
    statuses = wait_for_ranks(start_ranks(partial(_be_rank, start), start.world_size))
    if any(statuses):
        raise RuntimeError(f"exit statuses of the ranks: {statuses}")
    for old in start.folder.glob("state-*"):
        old.unlink()
    for new in start.folder.glob("new-*"):  # all have read the last ones
        new.rename(start.folder / new.name.replace("new", "state"))
    return [json.loads((start.folder / f"rank-{rank}.json").read_text()) for rank in range(start.world_size)]


def _moved(peer: Any, folder: Path, loader: str, legs: list[list[int]]) -> dict[str, Any]:
    """Return what the starts of one move gave."""
    for left in chain(folder.glob("state-*"), folder.glob("new-*")):
        left.unlink()
    try:
        starts = [_run(_Start(peer, loader, folder, *leg)) for leg in legs]
    except RuntimeError as exc:
        return {"failed": str(exc)}
    return {
        "starts": [[rank["batches"] for rank in ranks] for ranks in starts],
        "proof": starts[-1][0]["proof"],
    }


def main() -> None:
    """Print one line of JSON."""
    module, name, loader, samples, moves = sys.argv[1:]
    folder, peer = Path(name), import_module(f"benchmarks.elastic.{module}")
    folder.mkdir(parents=True)
    peer.pack(folder, int(samples))
    if getattr(peer, "PROCESS_GROUP", True):
        import torch.distributed  # here, so that no rank has to

        torch.set_num_threads(1)
    print(json.dumps({"moves": [_moved(peer, folder, loader, legs) for legs in json.loads(moves)]}))


if __name__ == "__main__":
    main()
