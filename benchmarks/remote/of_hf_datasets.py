"""Hugging Face datasets, streaming: rows in Parquet files behind http, a shuffle buffer, torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import datasets
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from benchmarks.remote.work import RemoteWork

__all__ = ["pack_rows", "rows"]

_BUFFER = 1000  # samples to shuffle among; the library's default


def pack_rows(work: RemoteWork) -> None:
    """A column of bytes, as its own writer lays it out."""
    for shard in range(work.shards):
        table = datasets.Dataset.from_dict({"row": list(work.values(shard))})
        table.to_parquet(work.packed / f"train-{shard:06d}.parquet")


def rows(work: RemoteWork) -> Iterable[Any]:
    """Workers take whole files; so do readers, if there are as many files."""
    files = [f"{work.url}/{path.name}" for path in sorted(work.packed.glob("*.parquet"))]
    dataset = datasets.load_dataset("parquet", data_files={"train": files}, split="train", streaming=True)
    dataset = dataset.shuffle(seed=0, buffer_size=_BUFFER)
    if work.readers:
        datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0  # 5 s at the end of all reading, which tell nothing here
        dataset = split_dataset_by_node(dataset, rank=work.reader, world_size=work.readers)
    return DataLoader(
        dataset,
        batch_size=work.row_batch,
        num_workers=0 if work.readers else work.workers,
        collate_fn=lambda samples: work.batch(sample["row"] for sample in samples),
    )
