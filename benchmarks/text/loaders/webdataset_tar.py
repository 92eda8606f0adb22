"""webdataset: tar shards with one member a sequence, a shuffle buffer, its WebLoader."""

from __future__ import annotations

import numpy as np
import webdataset

from benchmarks.text.loaders.padding import pad
from benchmarks.text.work import TRAININGS, Epochs, Work, read_texts

__all__ = ["LOADERS", "PACKS"]


def _pack(work: Work) -> None:
    """Four shards, so that workers have some each."""
    texts = read_texts(work.source / "sequences")
    with webdataset.ShardWriter(str(work.packed / "train-%06d.tar"), maxcount=-(-len(texts) // 4), verbose=0) as sink:
        for number, ids in enumerate(texts):
            sink.write({"__key__": f"{number:08d}", "ids": ids.tobytes()})


def _padded(work: Work) -> Epochs:
    shards = sorted(str(path) for path in work.packed.glob("*.tar"))
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000)
    dataset = dataset.map(lambda sample: np.frombuffer(sample["ids"], np.uint16).astype(np.int64))
    batches = dataset.batched(TRAININGS["padded"].batch_size, collation_fn=pad)
    persistent = work.workers > 0
    loader = webdataset.WebLoader(batches, batch_size=None, num_workers=work.workers, persistent_workers=persistent)
    return Epochs(lambda: loader)


LOADERS = {"webdataset": {"padded": _padded}}
PACKS = {"padded": _pack}
