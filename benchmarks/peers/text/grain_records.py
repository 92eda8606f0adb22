"""Grain: array_record files of ids, padded by its own batch function, in threads of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from numpy.typing import NDArray

from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """One array_record file, one record a group, as its documentation asks for random access."""
    tokens, offsets = np.load(work.source / "tokens.npy"), np.load(work.source / "offsets.npy")
    writer = ArrayRecordWriter(str(work.packed / "train.array_record"), "group_size:1")
    for start, stop in pairwise(offsets):
        writer.write(tokens[start:stop].tobytes())
    writer.close()


def _pad(rows: Sequence[NDArray[np.uint16]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return ids, lengths


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    records = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(work.packed / "train.array_record")))
    samples = records.shuffle(seed=1).map(lambda data: np.frombuffer(data, np.uint16))
    options = grain.ReadOptions(num_threads=work.workers, prefetch_buffer_size=2 * work.batch_size)
    return samples.to_iter_dataset(options).batch(work.batch_size, batch_fn=_pad)
