"""
Pack one library's rows, or open them and take the first batch, in its own environment.

    python -m benchmarks.scale.measure MODULE FOLDER COUNT [OPENED BATCHES]

Without OPENED and BATCHES, functions of the module, it packs. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.process_tree import cpu_seconds
from benchmarks.scale.rows import BATCH, numbers_of

__all__ = ["first_batch", "main"]

_MIB = 1024


@dataclass(frozen=True, slots=True)
class _Now:
    """The clocks and the memory of this process: what it alone has mapped, and what of it is not just a file's page."""

    wall_s: float
    cpu_s: float
    private_mb: float
    dirty_mb: float

    @classmethod
    def look(cls) -> _Now:
        wall, cpu = time.perf_counter(), time.process_time()
        text = Path("/proc/self/smaps_rollup").read_text()
        kb = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in text.splitlines()[1:])}
        clean, dirty = kb["Private_Clean"], kb["Private_Dirty"]
        return cls(wall, cpu, (clean + dirty) / _MIB, dirty / _MIB)

    def since(self, before: _Now, name: str) -> dict[str, float]:
        """Return what has been added, each figure with ``name`` before it."""
        figures = ("wall_s", "cpu_s", "private_mb", "dirty_mb")
        return {f"{name}_{figure}": getattr(self, figure) - getattr(before, figure) for figure in figures}


def _packed(peer: Any, folder: Path, count: int) -> dict[str, Any]:
    folder.mkdir(parents=True)
    before = cpu_seconds()
    peer.pack(folder, count)
    packed_cpu_s = cpu_seconds() - before
    os.sync()  # pages of files count as the process's own until they are on the disk
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"packed_cpu_s": packed_cpu_s, "size_mb": size / 1e6}


def first_batch(peer: Any, folder: Path, count: int, opened: str, batches: str) -> dict[str, float]:
    """
    Open a set of ``count`` rows by two functions of a module and take a batch.

    RuntimeError unless it has 256 rows of the set, each once and shuffled.
    """
    before = _Now.look()
    dataset = getattr(peer, opened)(folder)
    after_opening = _Now.look()
    iterator = getattr(peer, batches)(dataset)
    batch = next(iterator)
    after_batch = _Now.look()
    numbers = numbers_of(peer.rows(batch))
    found = {number for number in numbers if 0 <= number < count}
    if len(found) != BATCH:
        raise RuntimeError(f"{peer.__name__}: {len(found)} rows of the set in the first batch, not {BATCH}")
    if numbers == sorted(numbers):
        raise RuntimeError(f"{peer.__name__}: the first batch is not shuffled")
    return after_opening.since(before, "opened") | after_batch.since(before, "first")


def main() -> None:
    """Print one line of JSON."""
    module, name, count, *functions = sys.argv[1:]
    peer = import_module(f"benchmarks.scale.{module}")
    if not functions:
        answer = _packed(peer, Path(name), int(count))
    else:
        answer = first_batch(peer, Path(name), int(count), *functions)
    print(json.dumps(answer), flush=True)
    os._exit(0)  # threads that read ahead need not end


if __name__ == "__main__":
    main()
