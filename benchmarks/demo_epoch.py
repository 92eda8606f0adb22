"""One epoch over files or over a store, as one line of JSON: rate, samples, files opened."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers import files_pil
from fastio import FastDataset, FastLoader, MockTrainer
from fastio.machine import available_cpus

__all__ = ["main"]


def count_opens(path: Path) -> Any:
    """A counter, shared with DataLoader workers, of files opened at or below ``path``."""
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


def main(name: str, path: Path, labels: Path) -> None:
    """Build the loader, read one epoch with a mock trainer, print what happened."""
    opened = count_opens(path)
    workers = available_cpus()
    loader: Iterable[Any]
    if name == "files":
        loader = files_pil.loader(path, labels, batch_size=128, workers=workers)
        how = f"PIL, DataLoader, {workers} workers"
    else:
        loader = FastLoader(FastDataset(path), batch_size=128)
        how = f"FastLoader, {workers} threads"
    result = MockTrainer().run(loader)
    line = {"samples": result.samples, "samples_per_s": result.samples_per_s, "opened": opened.value, "how": how}
    print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
