"""webdataset: tar shards with one member a sequence, a shuffle buffer, its WebLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import webdataset

from benchmarks.peers.sequences import pad, sequences
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """Four shards, so that both workers have some."""
    shard = -(-(len(np.load(work.source / "offsets.npy")) - 1) // 4)
    with webdataset.ShardWriter(str(work.packed / "train-%06d.tar"), maxcount=shard, verbose=0) as sink:
        for number, ids in enumerate(sequences(work)):
            sink.write({"__key__": f"{number:08d}", "ids": ids.tobytes()})


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    shards = sorted(str(path) for path in work.packed.glob("*.tar"))
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000)
    dataset = dataset.map(lambda sample: np.frombuffer(sample["ids"], np.uint16).astype(np.int64))
    batches = dataset.batched(work.batch_size, collation_fn=pad)
    return webdataset.WebLoader(batches, batch_size=None, num_workers=work.workers, persistent_workers=True)
