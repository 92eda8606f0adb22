"""MosaicML Streaming: MDS shards of numbers, its StreamingDataset and StreamingDataLoader, which keep the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.streaming_library import MDSWriter, StreamingDataset

__all__ = ["loader", "numbers", "pack"]

_SHARD_BYTES = 2048


def pack(folder: Path, count: int) -> None:
    """Shards of about 100 samples."""
    with MDSWriter(out=str(folder / "shards"), columns={"number": "int"}, size_limit=_SHARD_BYTES) as out:
        for number in range(count):
            out.write({"number": number})


def loader(folder: Path, batch_size: int) -> Any:
    """Ranks come from the environment; the dataset wants to know the batch size."""
    from streaming import StreamingDataLoader

    dataset = StreamingDataset(local=str(folder / "shards"), shuffle=True, batch_size=batch_size)
    return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=0)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch["number"].tolist()
