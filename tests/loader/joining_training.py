"""
A training that lives on while a process joins it, and another one is killed; test_set_ranks counts its samples.

    python -m tests.loader.joining_training STORE FOLDER KIND

starts three processes. After JOIN_AFTER steps a fourth one joins, and at step KILL_AT one kills itself before training:
the others notice that when they exchange gradients, and go on from the latest step that all of them have. FOLDER gets
the samples of each step that counts, by process, and what each receipt says.

A process keeps its name for life, and its rank follows from who is there. They meet in a store of torch that none of
them keeps: it would end with that one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from fastio import FastDataset, FastLoader, PackSampler
from tests.forking import fork, status_of

# Who is there: at first, after JOIN_AFTER steps, and when VICTIM is gone.
MEMBERS = ((0, 1, 2), (0, 1, 2, 3), (3, 0, 2))
JOIN_AFTER, KILL_AT, VICTIM = 4, 9, 1
EPOCHS = 2
TIMEOUT = timedelta(seconds=60)


def build(kind: str, path: Path) -> FastLoader:
    """A loader for the process group's ranks."""
    dataset = FastDataset(path)
    if kind == "shuffled":
        return FastLoader(dataset, 3, shuffle="full", seed=7, threads=1)
    lengths = 1 + torch.arange(len(dataset)) % 7
    return FastLoader(dataset, batch_sampler=PackSampler(lengths.numpy(), max_tokens=12), threads=1)


def meet(port: int, generation: int, name: int) -> None:
    """Make the process group of a generation."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    store = distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)
    members = MEMBERS[generation]
    distributed.init_process_group(
        "gloo",
        store=distributed.PrefixStore(str(generation), store),
        rank=members.index(name),
        world_size=len(members),
        timeout=TIMEOUT,
    )


def agree(loader: FastLoader, kept: dict[int, Any]) -> int:
    """Go on from the latest step that all who have trained so far have; return its number."""
    every: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(every, kept)
    states = [each for each in every if each]
    step = min(max(each) for each in states)
    loader.load_state_dict([json.loads(each[step]) for each in states])
    return step


def train(kind: str, path: Path, folder: Path, port: int, name: int) -> None:
    """Be one process of the training, from the generation on in which it comes."""
    generation = next(number for number, members in enumerate(MEMBERS) if name in members)
    meet(port, generation, name)
    loader = build(kind, path)
    kept: dict[int, Any] = {}
    step = agree(loader, kept) if generation else 0
    with (folder / f"{name}.jsonl").open("w", buffering=1) as log:
        while loader.state_dict()["epoch"] < EPOCHS:
            epoch = loader.state_dict()["epoch"]
            if not run(loader, log, kept, step, generation, name):
                generation += 1
                meet(port, generation, name)
                loader.set_ranks()
                step = agree(loader, kept)
                continue
            step = max(kept)
            receipt = loader.receipt()
            log.write(json.dumps({"epoch": epoch, "exact": receipt.is_exact, "receipt": str(receipt)}) + "\n")


def run(loader: FastLoader, log: Any, kept: dict[int, Any], step: int, generation: int, name: int) -> bool:
    """Train to the end of the epoch and return True; False where the ranks are about to be others."""
    for numbers, _ in loader:
        step += 1
        if (step, name) == (KILL_AT, VICTIM):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            distributed.all_reduce(numbers.float().sum())
            loader.receipt()  # all ranks tell their parts: those of one that is killed later are known
        except RuntimeError:  # of gloo: a process is gone
            return False
        if len(kept) > 1:  # another process may have come a step less far
            kept.pop(min(kept))
        kept[step] = json.dumps(loader.state_dict())
        log.write(json.dumps({"step": step, "samples": numbers.tolist()}) + "\n")
        if (step, generation) == (JOIN_AFTER, 0):
            return False
    return True


def main() -> int:
    """Run all processes; only the victim may end early."""
    path, folder, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    names = sorted({name for members in MEMBERS for name in members})
    processes = [fork(partial(train, kind, path, folder, store.port, name)) for name in names]
    statuses = [status_of(process) for process in processes]
    return 0 if statuses == [-signal.SIGKILL if name == VICTIM else 0 for name in names] else 1


if __name__ == "__main__":
    sys.exit(main())
