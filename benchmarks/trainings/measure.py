"""One loader in this process: ``python -m benchmarks.trainings.measure TRAINING NAME WORK SECONDS``; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.process_tree import cpu_seconds
from benchmarks.trainings.work import LOADERS, TRAININGS, Work

__all__ = ["main"]


def check(training: str, batch: Any) -> int:
    """The number of photos of a batch. Raises AssertionError if it is not what was asked for."""
    views, labels = batch
    sides = [crop.side for crop in TRAININGS[training] for _ in range(crop.count)]
    assert [tuple(view.shape) for view in views] == [(len(labels), 3, side, side) for side in sides]
    assert {view.dtype for view in views} == {torch.uint8}
    return len(labels)


def main(training: str, name: str, folders: str, seconds: str) -> None:
    """An epoch that is checked and not counted, then whole epochs until the seconds have passed."""
    torch.set_num_threads(1)
    given = json.loads(folders)
    work = Work(**{**given, "photos": Path(given["photos"]), "packed": Path(given["packed"])})
    loader = LOADERS[name](work, TRAININGS[training])
    checked = sum(check(training, batch) for batch in loader)
    samples, cpu, wall = 0, cpu_seconds(), time.perf_counter()
    while time.perf_counter() - wall < float(seconds):
        samples += sum(len(labels) for _, labels in loader)
    cpu_s, wall_s = cpu_seconds() - cpu, time.perf_counter() - wall
    print(json.dumps({"checked": checked, "samples": samples, "cpu_s": cpu_s, "wall_s": wall_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
