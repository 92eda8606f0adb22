"""MosaicML Streaming: MDS shards of numbers, its StreamingDataset and StreamingDataLoader, which keep the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.streaming_library import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

__all__ = ["loader", "mixture", "numbers", "pack"]

_SHARD_BYTES = 2048


def pack(folder: Path, count: int) -> None:
    """Shards of about 100 samples: of all numbers, and again of three and two fifths of them."""
    cut = 3 * count // 5
    for name, start, stop in (("shards", 0, count), ("first", 0, cut), ("second", cut, count)):
        with MDSWriter(out=str(folder / name), columns={"number": "int"}, size_limit=_SHARD_BYTES) as out:
            for number in range(start, stop):
                out.write({"number": number})


def loader(folder: Path, batch_size: int) -> Any:
    """Ranks come from the environment; the dataset wants to know the batch size."""
    return _loader(batch_size, local=str(folder / "shards"))


def mixture(folder: Path, batch_size: int) -> Any:
    """Two streams in the proportion of their sizes, so that an epoch has each sample once."""
    streams = [
        Stream(local=str(folder / name), proportion=portion) for name, portion in (("first", 0.6), ("second", 0.4))
    ]
    return _loader(batch_size, streams=streams)


def _loader(batch_size: int, **source: Any) -> Any:
    dataset = StreamingDataset(**source, shuffle=True, batch_size=batch_size)
    return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=0)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch["number"].tolist()
