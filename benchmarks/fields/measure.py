"""One loader in this process: ``python -m benchmarks.fields.measure TASK NAME WORK SECONDS``; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.fields.work import CAPTIONS, SCENES, Work, captions_of
from benchmarks.process_tree import cpu_seconds

__all__ = ["main"]

TASKS: dict[str, dict[str, Callable[[Work], Iterable[Any]]]] = {"scenes": SCENES, "captions": CAPTIONS}


def check(task: str, batch: Any, work: Work) -> int:
    """The number of samples of a batch. Raises AssertionError if it is not what was asked for."""
    pictures, others = batch
    assert pictures.dtype == torch.uint8, pictures.dtype
    side = 256 if task == "scenes" else 224
    assert pictures.shape[1:] == (3, side, side), pictures.shape
    assert len(pictures) == len(others) <= work.batch_size
    if task == "scenes":
        assert others.shape[1:] == (side, side), others.shape
    else:
        assert set(others) <= set(captions_of(work.files).values())
    return len(pictures)


def main(task: str, name: str, folders: str, seconds: str) -> None:
    """An epoch that is checked and not counted, then whole epochs until the seconds have passed."""
    torch.set_num_threads(1)
    given = json.loads(folders)
    work = Work(**{**given, "files": Path(given["files"]), "packed": Path(given["packed"])})
    loader = TASKS[task][name](work)
    checked = sum(check(task, batch, work) for batch in loader)
    samples, cpu, wall = 0, cpu_seconds(), time.perf_counter()
    while time.perf_counter() - wall < float(seconds):
        samples += sum(len(batch[0]) for batch in loader)
    cpu_s, wall_s = cpu_seconds() - cpu, time.perf_counter() - wall
    print(json.dumps({"checked": checked, "samples": samples, "cpu_s": cpu_s, "wall_s": wall_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
