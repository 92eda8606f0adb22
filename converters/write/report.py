"""WriteReport: what a Writer wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastio.converters.source import Problem
from fastio.types.schema import Schema

__all__ = ["WriteReport"]


@dataclass(frozen=True, slots=True)
class WriteReport:
    """
    What a ``Writer`` did, in ``seconds`` from its first sample to the complete store.

    ``payload_bytes`` are the bytes of all encoded values. ``made_pngs`` pictures came as pixels and became PNGs.
    ``notes`` are sentences on values that are packed, but may not be what was meant.
    """

    path: str
    format: str
    schema: Schema
    packed: int
    skipped: Sequence[Problem]
    payload_bytes: int
    store_bytes: int
    shards: int
    made_pngs: int
    notes: Sequence[str]
    seconds: float

    @property
    def found(self) -> int:
        """Samples that were handed over: packed and skipped."""
        return self.packed + len(self.skipped)

    @property
    def samples_per_s(self) -> float:
        """Samples packed a second."""
        return self.packed / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        """Return one line: what is in the store, how large it is, how fast it was written, what to know."""
        fields = ", ".join(each.name for each in self.schema.fields)
        files = "1 file" if self.shards == 1 else f"{self.shards} files"
        size = f"{self.store_bytes:,} bytes in {files}, {self.samples_per_s:,.0f} samples/s"
        parts = [f"{self.path}: {self.packed:,} samples of {fields}; {size}"]
        if self.skipped:
            parts.append(f"{len(self.skipped):,} skipped, listed in the store")
        if self.made_pngs:
            parts.append(
                f"{self.made_pngs:,} pictures came as pixels and became PNGs, which keep every pixel; the bytes of "
                "their files would be smaller and faster"
            )
        parts += self.notes
        return "; ".join(parts)
