"""Makes batches ahead of the loop: by native jobs, from the dataset's own samples in threads, or from a cache."""

from __future__ import annotations

from fastio.loader.producer.choose import PRODUCERS, choose_collate, make_producer
from fastio.loader.producer.producer import FinishedBatch, PendingBatch, Producer, ProducerContext, ProducerKind

__all__ = [
    "PRODUCERS",
    "FinishedBatch",
    "PendingBatch",
    "Producer",
    "ProducerContext",
    "ProducerKind",
    "choose_collate",
    "make_producer",
]
