"""fastio: behind http, photos as a set of tar shards or one store, rows as one HDF5 store."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import torch  # noqa: F401 - as the peers do, so that no run counts its import

from benchmarks.remote.work import BATCH_SIZE, RemoteWork
from fastio import FastDataset, FastLoader, Remote, Writer
from fastio.converters import open_source
from fastio.converters import pack as pack_store
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

__all__ = ["loader", "pack", "pack_rows", "rows"]

_SHARD_BYTES = 100_000_000
_ROWS = "rows.h5"


def pack(work: RemoteWork) -> None:
    """Shards of 100 MB, where the container has shards."""
    names = sorted(path.name for path in work.source.iterdir())
    labels = work.packed / "numbers.pkl"
    labels.write_bytes(pickle.dumps({name: number for number, name in enumerate(names)}))
    shard_bytes = _SHARD_BYTES if work.container == "tar" else None
    pack_store(open_source(work.source, labels=labels), work.packed / _name(work), shard_bytes=shard_bytes)


def loader(work: RemoteWork) -> Iterable[Any]:
    """Threads, no workers; ``cache_bytes`` of what arrived are kept in ``scratch``."""
    remote = Remote(cache_dir=work.scratch, cache_limit=work.cache_bytes) if work.cache_bytes else Remote()
    return FastLoader(
        FastDataset(f"{work.url or work.packed}/{_name(work)}", remote=remote),
        BATCH_SIZE,
        shuffle=True,
        threads=work.workers,
        transforms=[RandomResizedCrop(224), RandomHorizontalFlip()],
    )


def _name(work: RemoteWork) -> str:
    return f"train{'-%06d' if work.container == 'tar' else ''}.{work.container}"


def pack_rows(work: RemoteWork) -> None:
    """One store."""
    if not work.pictures:
        pack_store(open_source(work.source), work.packed / _ROWS)
        return
    with Writer(work.packed / _ROWS, {"image": "image"}) as writer:
        for value in work.all_values():
            writer.write({"image": value})


def rows(work: RemoteWork) -> Iterator[Any]:
    """As ``loader``; readers with ``cache_bytes`` share ``scratch``."""
    dataset = FastDataset(
        f"{work.url}/{_ROWS}", remote=Remote(cache_dir=work.scratch) if work.cache_bytes else Remote()
    )
    with FastLoader(
        dataset,
        work.row_batch,
        shuffle="full" if work.full else True,
        threads=1 if work.readers else work.workers,
        rank=work.reader,
        world_size=work.readers or 1,
    ) as loader:
        for batch in loader:
            yield batch[0] if isinstance(batch, tuple) else batch
    dataset.close()
