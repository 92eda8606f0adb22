"""Reads files or a store once, and then under a mock training; prints the rates as one line of JSON."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers import files_pil
from fastio import FastDataset, FastLoader
from fastio.machine import available_cpus
from fastio.measure import MockTrainer
from fastio.measure.loop.data import Data
from fastio.measure.loop.halves import measure_halves

__all__ = ["main", "measure"]

_BATCH_SIZE = 128


def main(name: str, path: Path, labels: Path, step_ms: float) -> None:
    """Measure one way of reading with all CPUs, and print the result."""
    print(json.dumps(measure(name, path, labels, workers=available_cpus(), step_ms=step_ms, seconds=1.5)))


def measure(
    name: str, path: Path, labels: Path, *, workers: int, step_ms: float = 0.0, seconds: float = 0.0
) -> dict[str, Any]:
    """
    Read one epoch and return its rate, its samples and the files that it opened.

    With ``step_ms``, ``training`` holds what ``measure_halves`` finds, in ``seconds`` each, for a step that waits as
    long for every batch.
    """
    opened = _count_opens(path)
    loader: Iterable[Any]
    if name == "files":
        loader = files_pil.loader(path, labels, batch_size=_BATCH_SIZE, workers=workers)
        how = f"PIL, DataLoader, {workers} workers"
    else:
        loader = FastLoader(FastDataset(path), batch_size=_BATCH_SIZE)
        how = f"FastLoader, {workers} threads"
    epoch = MockTrainer().run(loader)
    line = {"samples": epoch.samples, "samples_per_s": epoch.samples_per_s, "opened": opened.value, "how": how}
    if not step_ms:
        return line
    halves = measure_halves(Data(name, "function", loader), lambda _: time.sleep(step_ms / 1e3), seconds=seconds)
    training = {
        "step_ms": step_ms,
        "batch_size": _BATCH_SIZE,
        "io_samples_per_s": halves.io.steady_samples_per_s,
        "training_samples_per_s": halves.training.samples_per_s,
        "loop_samples_per_s": halves.loop.steady_samples_per_s,
        "loading_share": halves.loop.loading_share,
        "bound": halves.verdict.bound,
        "timeline": dataclasses.asdict(halves.timeline),
    }
    return {**line, "training": training}


def _count_opens(path: Path) -> Any:
    """Return a counter, shared with DataLoader workers, of files opened at or below ``path``."""
    counter = multiprocessing.get_context("fork").Value("q", 0)
    prefix = str(path.resolve())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            name = str(Path(arguments[0]).absolute())
            if name == prefix or name.startswith(prefix + os.sep):
                with counter.get_lock():
                    counter.value += 1

    sys.addaudithook(hook)
    return counter


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
