"""Grain: array_record files of ids, padded by its own batch function, in threads of its own."""

from __future__ import annotations

from collections.abc import Sequence

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from numpy.typing import NDArray

from benchmarks.text.work import TRAININGS, Batch, Epochs, Work, read_texts

__all__ = ["LOADERS", "PACKS"]


def _pack(work: Work) -> None:
    """One array_record file, one record a group, as its documentation asks for random access."""
    writer = ArrayRecordWriter(str(work.packed / "train.array_record"), "group_size:1")
    for ids in read_texts(work.source / "sequences"):
        writer.write(ids.tobytes())
    writer.close()


def _pad(rows: Sequence[NDArray[np.uint16]]) -> Batch:
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return {"input_ids": ids, "lengths": lengths}, len(rows)


def _padded(work: Work) -> Epochs:
    size = TRAININGS["padded"].batch_size
    records = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(work.packed / "train.array_record")))
    samples = records.shuffle(seed=1).map(lambda data: np.frombuffer(data, np.uint16))
    options = grain.ReadOptions(num_threads=work.workers, prefetch_buffer_size=2 * size if work.workers else 0)
    loader = samples.to_iter_dataset(options).batch(size, batch_fn=_pad)
    return Epochs(lambda: loader)


LOADERS = {"Grain": {"padded": _padded}}
PACKS = {"padded": _pack}
