"""
A training that is killed and started again with other numbers of processes; test_killed_training counts its samples.

    python -m tests.loader.elastic_training STORE FOLDER SEED 2 3 2

starts two processes, kills them (SIGKILL) at a random moment, starts three, kills them, and lets two more end the
training. Each start goes on from the last checkpoint. FOLDER gets a log of every rank of every start: a JSON line for
each step, written before the step is trained, and the receipt of each epoch.

All processes are forks of one that has imported torch: a start takes a tenth of a second.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from fastio import FastLoader
from tests.forking import kill, start_ranks, status_of

EPOCHS = 3
STEPS_PER_CHECKPOINT = 3
# Of all ranks together, from start to kill: each step has two of each rank, a checkpoint has two more of rank 0.
MOST_MARKS = 40
SECONDS = 200  # after which a start that does nothing is given up
BATCH = {2: 4, 3: 5}  # by the number of processes


def train(store: Path, folder: Path, start: int, rank: int, world_size: int, marks: int) -> None:
    """Train on one rank from the last checkpoint to the end; writes a byte to ``marks`` wherever a kill may come."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    momentum = {name: torch.zeros_like(weights) for name, weights in model.named_parameters()}
    loader = FastLoader(store, BATCH[world_size], shuffle="full", seed=7, threads=1)
    saved, step = folder / "checkpoint.pt", 0
    if saved.exists():
        checkpoint = torch.load(saved)
        model.load_state_dict(checkpoint["model"])
        momentum = checkpoint["momentum"]
        loader.load_state_dict(json.loads(checkpoint["loader"]))
        step = checkpoint["step"]
    with (folder / f"{start}-{rank}.jsonl").open("w", buffering=1) as log:
        while (epoch := loader.state_dict()["epoch"]) < EPOCHS:
            for numbers, _ in loader:
                step += 1
                log.write(json.dumps({"step": step, "epoch": epoch, "samples": numbers.tolist()}) + "\n")
                os.write(marks, b".")
                loss = (model(numbers.float()[:, None] / 50).sin() - 0.5).square().mean()
                model.zero_grad()
                loss.backward()
                descend(model, momentum, world_size)
                log.write(json.dumps({"step": step, "loss": loss.item().hex()}) + "\n")
                os.write(marks, b".")
                if step % STEPS_PER_CHECKPOINT == 0:
                    loader.receipt()  # all ranks tell their parts, so that the state of rank 0 has them
                if rank == 0 and step % STEPS_PER_CHECKPOINT == 0:
                    checkpoint = {
                        "model": model.state_dict(),
                        "momentum": momentum,
                        "loader": json.dumps(loader.state_dict()),
                        "step": step,
                    }
                    torch.save(checkpoint, f"{saved}.new")
                    os.write(marks, b".")
                    Path(f"{saved}.new").replace(saved)
                    os.write(marks, b".")
            log.write(json.dumps({"receipt": loader.receipt().to_json()}) + "\n")
    loader.close()


def descend(model: torch.nn.Module, momentum: dict[str, torch.Tensor], world_size: int) -> None:
    """What DistributedDataParallel and SGD do; importing them would take most of a start."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            distributed.all_reduce(weights.grad)
            momentum[name] = 0.9 * momentum[name] + weights.grad / world_size
            weights -= 0.1 * momentum[name]


def run_rank(arguments: tuple[Any, ...], world_size: int, marks: tuple[int, int], rank: int) -> None:
    """Be one process of a start; ``marks`` are the ends of the pipe for them."""
    reading, writing = marks
    os.close(reading)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=SECONDS))
    train(*arguments, rank, world_size, writing)
    distributed.barrier()
    distributed.destroy_process_group()


def run_start(arguments: tuple[Any, ...], world_size: int, kill_after: int | None) -> int:
    """Run all processes of one start and return how many failed; they are killed after so many marks."""
    reading, writing = os.pipe()
    processes = start_ranks(partial(run_rank, arguments, world_size, (reading, writing)), world_size)
    os.close(writing)
    seen = 0
    while kill_after is None or seen < kill_after:
        ready, _, _ = select.select([reading], [], [], SECONDS)
        marks = os.read(reading, 1) if ready else b""
        if not marks:  # all have ended, or none moves
            break
        seen += 1
    if kill_after is not None or not ready:
        kill(processes)
    os.close(reading)
    return sum(status_of(process) not in (0, -signal.SIGKILL) for process in processes)


def main() -> int:
    """Run all starts, the last one to the end."""
    store, folder, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    sizes, draw = list(map(int, sys.argv[4:])), random.Random(seed)
    torch.set_num_threads(1)
    for start, world_size in enumerate(sizes):
        kill_after = None if start == len(sizes) - 1 else draw.randint(0, MOST_MARKS)
        failed = run_start((store, folder, start), world_size, kill_after)
        if failed:
            sys.stderr.write(f"start {start}: {failed} of {world_size} processes failed\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
