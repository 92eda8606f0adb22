"""webdataset: tar shards behind http, which its own ``curl`` pipe reads; a shuffle buffer, WebLoader, OpenCV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import webdataset

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.remote.work import BATCH_SIZE, RemoteWork

__all__ = ["loader", "pack"]

_SHARD_BYTES = 100_000_000
_BUFFER = 1000  # samples to shuffle among


def pack(work: RemoteWork) -> None:
    """Shards of 100 MB."""
    with webdataset.ShardWriter(
        str(work.packed / "train-%06d.tar"), maxcount=1_000_000, maxsize=_SHARD_BYTES, verbose=0
    ) as sink:
        for number, path in enumerate(sorted(work.photos.iterdir())):
            sink.write({"__key__": path.stem, "jpg": path.read_bytes(), "cls": str(number)})


def loader(work: RemoteWork) -> Iterable[Any]:
    """Workers take whole shards."""
    shards = [f"{work.url or work.packed}/{path.name}" for path in sorted(work.packed.glob("*.tar"))]
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(_BUFFER)
    dataset = dataset.to_tuple("jpg", "cls").map_tuple(lambda data: torch.from_numpy(opencv.random_224(data)), int)
    batches = dataset.batched(BATCH_SIZE, collation_fn=channels_first)
    return webdataset.WebLoader(batches, batch_size=None, num_workers=work.workers, persistent_workers=True)
