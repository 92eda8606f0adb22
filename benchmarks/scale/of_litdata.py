"""LitData: chunks, shuffled by StreamingDataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata

from benchmarks.peers.litdata_caches import own_caches
from benchmarks.scale.rows import BATCH, blocks

__all__ = ["batches", "opened", "pack", "rows"]


def _samples(count: int) -> Iterator[Any]:
    for block in blocks(count):
        yield from block


def pack(folder: Path, count: int) -> None:
    """Chunks of 64 MB, as its documentation has them; one call gives all rows."""
    chunks = folder / "chunks"
    own_caches(chunks)
    litdata.optimize(
        fn=_samples, inputs=[count], output_dir=str(chunks), chunk_bytes="64MB", num_workers=1, verbose=False
    )


def opened(folder: Path) -> Any:
    """The chunks where they lie."""
    return litdata.StreamingDataset(str(folder / "chunks"), shuffle=True)


def batches(dataset: Any) -> Iterator[Any]:
    """Its own loader, without workers."""
    return iter(litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0))


def rows(batch: Any) -> Any:
    """A batch is its rows."""
    return batch
