"""Figures for the tests of all trackers, and what takes and what causes them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from io import FileIO

from fastio.measure.trackers import Figure, Figures
from fastio.types.metrics import LoaderStats


def figures(step: int, loading_s: float = 0.25, *, extra: tuple[Figure, ...] = ()) -> Figures:
    """A gauge, a rate, a total, and one with a label."""
    return Figures(
        step,
        1_700_000_000.5 + step,
        (
            Figure("loading_median", loading_s, "seconds", "Wait for a batch."),
            Figure("samples", 1000.0, "per_second", "Samples per second.", "rate"),
            Figure("samples", 64.0 * step, "", "Samples.", "total"),
            Figure("gpu_memory_used", 3e9, "bytes", "In use.", labels=(("gpu", "1"), ("slice", "0"))),
            *extra,
        ),
        (("rank", "0"),),
    )


CURVES = {"loading_median_s", "samples_per_s", "gpu1/slice0/gpu_memory_used_bytes"}


class Kept:
    """A tracker that keeps what it gets."""

    def __init__(self) -> None:
        self.records: list[Figures] = []

    def write(self, figures: Figures) -> None:
        self.records.append(figures)

    def close(self) -> None:
        pass


class TokenLoader:
    """Three batches of four samples, with 96 tokens in 128 slots each, counted as a FastLoader counts."""

    def __init__(self) -> None:
        self.stats = LoaderStats(threads=2)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(3):
            self.stats.counts.tokens += 96
            self.stats.counts.slots += 128
            yield [1, 2, 3, 4]


class FullDisk:
    """A file whose disk takes half of a piece, then nothing."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._has_failed = False
        self.fileno, self.truncate = file.fileno, file.truncate

    def write(self, piece: bytes) -> int:
        if self._has_failed:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._has_failed = True
        return self._file.write(piece[: len(piece) // 2])
