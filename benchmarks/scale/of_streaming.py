"""MosaicML Streaming: MDS shards, shuffled by StreamingDataset's default algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.streaming_library import MDSWriter, StreamingDataLoader, StreamingDataset
from benchmarks.scale.rows import BATCH, LENGTH, blocks

__all__ = ["batches", "opened", "pack", "rows"]


def pack(folder: Path, count: int) -> None:
    """Shards of the default size; an array of a known shape a sample."""
    with MDSWriter(out=str(folder / "shards"), columns={"ids": f"ndarray:uint16:{LENGTH}"}) as out:
        for block in blocks(count):
            for row in block:
                out.write({"ids": row})


def opened(folder: Path) -> Any:
    """The dataset wants to know the batch size."""
    return StreamingDataset(local=str(folder / "shards"), shuffle=True, batch_size=BATCH)


def batches(dataset: Any) -> Iterator[Any]:
    """Its own loader, without workers."""
    return iter(StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0))


def rows(batch: Any) -> Any:
    """The only column."""
    return batch["ids"]
