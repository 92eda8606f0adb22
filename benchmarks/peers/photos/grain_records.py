"""Grain: array_record files of encoded photos, OpenCV as decoder, in threads of its own (its faster way here)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from benchmarks.peers import opencv
from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """One array_record file, one record a group, as its documentation asks for random access."""
    writer = ArrayRecordWriter(str(work.packed / "train.array_record"), "group_size:1")
    for name, number in names_and_numbers(work).items():
        writer.write(number.to_bytes(8, "little") + (work.source / name).read_bytes())
    writer.close()


class _Epochs:
    def __init__(self, work: Work) -> None:
        decode = opencv.transform(work.task)
        records = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(work.packed / "train.array_record")))
        if work.is_random:
            records = records.shuffle(seed=1)
        samples = records.map(lambda data: (decode(data[8:]), int.from_bytes(data[:8], "little")))
        options = grain.ReadOptions(num_threads=work.workers, prefetch_buffer_size=2 * work.batch_size)
        self.batches = samples.to_iter_dataset(options).batch(work.batch_size)

    def __iter__(self) -> Iterator[Any]:
        for images, numbers in self.batches:
            yield np.asarray(images).transpose(0, 3, 1, 2), numbers


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return _Epochs(work)
