"""What an epoch takes from a store behind a URL: requests, bytes and memory, by arithmetic."""

from __future__ import annotations

from functools import partial

from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.options import PREFETCH_BATCHES
from fastio.loader.producer.held_reader import HeldReader
from fastio.loader.selection.chosen import sample_bytes, sample_labels, shuffle_memory
from fastio.samplers.batches import OrderSampler
from fastio.samplers.order import Division
from fastio.types.metrics import HeldReads

__all__ = ["held_epoch"]


def held_epoch(dataset: FastDataset, batch_size: int = 256) -> HeldReads | None:
    """
    Return what one rank's epoch with ``shuffle=True`` takes; None if the page cache keeps the files, and where each
    sample would be a request of its own.
    """
    if not dataset.store.files.holds or not dataset.readers:
        return None
    order = OrderSampler(
        Division(len(dataset), batch_size),
        rank=0,
        shuffle=True,
        seed=0,
        sizes=partial(sample_bytes, dataset, is_cached=False),
        labels=partial(sample_labels, dataset),
        memory=shuffle_memory(dataset, 1),
    )
    reader = HeldReader(dataset, depth=PREFETCH_BATCHES)
    batches = reader.with_windows(order.plan(0))
    return None if batches.windows is None else reader.plan(batches).reads()
