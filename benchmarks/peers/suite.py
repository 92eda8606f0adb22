"""One set of data that peers read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import Entry, Task
from benchmarks.peers.work import Work

__all__ = ["Suite"]


@dataclass(frozen=True, slots=True)
class Suite:
    """
    ``expected`` is a .npy that outputs are checked against; ``packed`` a folder for the peers' own formats.

    ``pictures`` is the kind of photos; ``settings`` go into the file of results.
    """

    pictures: str
    source: Path
    labels: Path
    expected: Path
    packed: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def work(self, entry: Entry, task: Task, *, workers: int) -> Work:
        """What one peer is asked to do."""
        return Work(
            source=self.source,
            labels=self.labels,
            packed=self.packed / entry.packed_name,
            variant=entry.variant,
            task=task.work,
            batch_size=task.batch_size,
            workers=workers,
        )
