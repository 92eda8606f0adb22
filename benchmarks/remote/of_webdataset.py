"""webdataset: tar shards behind http, which its own ``curl`` pipe reads; a shuffle buffer, WebLoader, OpenCV."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
import webdataset

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.remote.work import BATCH_SIZE, RemoteWork

__all__ = ["loader", "pack", "pack_rows", "rows"]

_SHARD_BYTES = 100_000_000
_BUFFER = 1000  # samples to shuffle among


def pack(work: RemoteWork) -> None:
    """Shards of 100 MB."""
    with webdataset.ShardWriter(
        str(work.packed / "train-%06d.tar"), maxcount=1_000_000, maxsize=_SHARD_BYTES, verbose=0
    ) as sink:
        for number, path in enumerate(sorted(work.source.iterdir())):
            sink.write({"__key__": path.stem, "jpg": path.read_bytes(), "cls": str(number)})


def loader(work: RemoteWork) -> Iterable[Any]:
    """Workers take whole shards."""
    shards = _shards(work)
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(_BUFFER)
    dataset = dataset.to_tuple("jpg", "cls").map_tuple(lambda data: torch.from_numpy(opencv.random_224(data)), int)
    batches = dataset.batched(BATCH_SIZE, collation_fn=channels_first)
    return webdataset.WebLoader(batches, batch_size=None, num_workers=work.workers, persistent_workers=True)


def pack_rows(work: RemoteWork) -> None:
    """A file of the archive a row."""
    with webdataset.ShardWriter(
        str(work.packed / "train-%06d.tar"), maxcount=work.shard_rows, maxsize=10**12, verbose=0
    ) as sink:
        for number, value in enumerate(work.all_values()):
            sink.write({"__key__": f"{number:08d}", "bin": value})


def rows(work: RemoteWork) -> Iterable[Any]:
    """The same; a reader has shards of its own."""
    shards = _shards(work)
    if work.readers:
        os.environ.update(RANK=str(work.reader), WORLD_SIZE=str(work.readers))
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards), nodesplitter=webdataset.split_by_node)
    batches = dataset.shuffle(_BUFFER).to_tuple("bin").map(lambda sample: sample[0])
    batches = batches.batched(work.row_batch, collation_fn=work.batch)
    return webdataset.WebLoader(batches, batch_size=None, num_workers=0 if work.readers else work.workers)


def _shards(work: RemoteWork) -> list[str]:
    return [f"{work.url or work.packed}/{path.name}" for path in sorted(work.packed.glob("*.tar"))]
