"""The contiguous pieces of a store that ranks and worker processes read in order, also after the ranks have changed.

A rank reads one range, of which each worker takes a part. When the number of ranks changes within an epoch, worker w
of the new ranks takes what worker w of the old ranks has left: the state of a worker knows only its own progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from fastio.samplers.position import whole

__all__ = ["Entry", "Runs", "checked_history", "cut", "pieces"]

Runs = list[range]  # ascending or not, without overlap: the samples of one piece, in the order in which they are read
Entry = dict[str, int]  # {"world_size": ..., "samples": ...}: so many ranks have had so many samples each


def pieces(count: int, history: Sequence[Entry], *, world_size: int, workers: int, worker: int) -> list[Runs]:
    """
    Return what is left of ``count`` samples for one worker of every rank, one list of runs per rank.

    ``history`` says what this worker of all ranks has read in the epoch, one entry for each number of ranks there has
    been; a rank whose piece is shorter than ``samples`` has read all of it. Sizes differ by one sample at most.
    """
    column = _first(count, history[0]["world_size"] if history else world_size, workers, worker)
    for number, entry in enumerate(history):
        rest = list(chain.from_iterable(cut(piece, entry["samples"]) for piece in column))
        next_ranks = history[number + 1]["world_size"] if number + 1 < len(history) else world_size
        total = sum(map(len, rest))
        bounds = [total * rank // next_ranks for rank in range(next_ranks + 1)]
        column = [cut(rest, start, stop) for start, stop in pairwise(bounds)]
    return column


def cut(runs: Runs, start: int, stop: int | None = None) -> Runs:
    """Return the samples ``start`` to ``stop`` of several runs, counted from the first run's beginning."""
    parts = []
    for run in runs:
        part = run[max(0, start) : None if stop is None else max(0, stop)]
        if part:
            parts.append(part)
        start -= len(run)
        stop = None if stop is None else stop - len(run)
    return parts


def checked_history(consumed: Any, count: int) -> list[Entry]:
    """Return the history of a state; None is an empty one. Raises ValueError if it is damaged."""
    entries = [] if consumed is None else consumed
    if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ValueError(f"consumed={consumed!r}: expected a list of world_size and samples in the state")
    return [
        {
            "world_size": whole("world_size", entry.get("world_size"), "1 or more in the state", least=1),
            "samples": whole("samples", entry.get("samples"), f"0 to {count} in the state", least=0, below=count + 1),
        }
        for entry in entries
    ]


def _first(count: int, world_size: int, workers: int, worker: int) -> list[Runs]:
    """
    Return the piece of one worker of every rank at the beginning of an epoch.

    All workers but the last have pieces of equal size on every rank, so ranks in step run out of batches only at the
    last worker, and a worker's progress is the same on all of them until then.
    """
    least, extra = divmod(count, world_size * workers)
    equal = [least + (number < extra // world_size) for number in range(workers - 1)]
    last = count - world_size * sum(equal)
    column = []
    for rank in range(world_size):
        start = rank * sum(equal) + last * rank // world_size + sum(equal[:worker])
        size = equal[worker] if worker < workers - 1 else last * (rank + 1) // world_size - last * rank // world_size
        column.append([range(start, start + size)])
    return column
