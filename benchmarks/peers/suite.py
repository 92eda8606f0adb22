"""One set of data, the tasks on it and the peers that do them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from benchmarks.peers.catalogue import Entry
from benchmarks.peers.work import Work

__all__ = ["Suite"]


@dataclass(frozen=True, slots=True)
class Suite:
    """
    ``expected`` is a .npy that outputs are checked against; ``packed`` a folder for the peers' own formats.

    ``settings`` go into the file of results.
    """

    tasks: tuple[str, ...]
    entries: tuple[Entry, ...]
    source: Path
    labels: Path
    expected: Path
    packed: Path
    batch_size: int
    settings: dict[str, Any] = field(default_factory=dict)

    def part(self, task: str, only: str) -> Self:
        """One task, or with "all" each; the peers with ``only`` in their names."""
        return replace(
            self,
            tasks=tuple(name for name in self.tasks if task in (name, "all")),
            entries=tuple(entry for entry in self.entries if only.lower() in entry.name.lower()),
        )

    def work(self, entry: Entry, task: str, *, workers: int) -> Work:
        """What one peer is asked to do."""
        return Work(
            source=self.source,
            labels=self.labels,
            packed=self.packed / entry.packed_name,
            variant=entry.variant,
            task=task,
            batch_size=self.batch_size,
            workers=workers,
        )
