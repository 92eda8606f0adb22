"""fastio itself, measured as its peers are; ``variant``: "groups" (LengthBucketSampler) or "plain"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks.peers.work import Work
from fastio import FastDataset, FastLoader, LengthBucketSampler
from fastio.store import SampleBatch, create_store
from fastio.types.schema import TOKENS, Field, Schema
from fastio.types.spans import Spans

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """One HDF5 file."""
    tokens, offsets = np.load(work.source / "tokens.npy"), np.load(work.source / "offsets.npy")
    starts, sizes = offsets[:-1] * 2, np.diff(offsets) * 2
    keys = [f"{number:09d}" for number in range(len(sizes))]
    with create_store(work.packed / "train.h5", Schema((Field("tokens", TOKENS, "<u2", (None,)),))) as writer:
        spans = Spans.of(tokens.astype("<u2").view(np.uint8), starts, sizes)
        writer.append(SampleBatch(keys, {"tokens": spans}))


class _Pairs:
    """The batches of a loader as pairs of ids and lengths."""

    def __init__(self, loader: FastLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return ((batch["input_ids"], batch["lengths"]) for batch in self._loader)


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    dataset = FastDataset(work.packed / "train.h5")
    if work.variant == "plain":
        return _Pairs(FastLoader(dataset, work.batch_size, shuffle="full", threads=work.workers))
    sampler = LengthBucketSampler(dataset.column("length"), batch_size=work.batch_size)
    return _Pairs(FastLoader(dataset, batch_sampler=sampler, threads=work.workers))
