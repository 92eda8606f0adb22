"""fastio: a set of tar shards behind http."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import torch  # noqa: F401 - as the peers do, so that no run counts its import

from benchmarks.remote.work import BATCH_SIZE, RemoteWork
from fastio import FastDataset, FastLoader, Remote
from fastio.converters import open_source
from fastio.converters import pack as pack_store
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

__all__ = ["loader", "pack"]

_SHARD_BYTES = 100_000_000
_NAME = "train-%06d.tar"


def pack(work: RemoteWork) -> None:
    """Shards of 100 MB."""
    names = sorted(path.name for path in work.photos.iterdir())
    labels = work.packed / "numbers.pkl"
    labels.write_bytes(pickle.dumps({name: number for number, name in enumerate(names)}))
    pack_store(open_source(work.photos, labels=labels), work.packed / _NAME, shard_bytes=_SHARD_BYTES)


def loader(work: RemoteWork) -> Iterable[Any]:
    """Threads, no workers; ``cache_bytes`` of what arrived are kept in ``scratch``."""
    remote = Remote(cache_dir=work.scratch, cache_limit=work.cache_bytes) if work.cache_bytes else Remote()
    return FastLoader(
        FastDataset(f"{work.url or work.packed}/{_NAME}", remote=remote),
        BATCH_SIZE,
        shuffle=True,
        threads=work.workers,
        transforms=[RandomResizedCrop(224), RandomHorizontalFlip()],
    )
