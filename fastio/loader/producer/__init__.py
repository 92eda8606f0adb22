"""Makes batches ahead of the loop: by native jobs, from the dataset's own samples in threads, or from a cache."""

from __future__ import annotations

from fastio.loader.producer.producer import FinishedBatch, PendingBatch, Producer, ProducerContext, ProducerKind
from fastio.loader.producer.registry import PRODUCERS, choose_collate, make_producer, packs_fields

__all__ = [
    "PRODUCERS",
    "FinishedBatch",
    "PendingBatch",
    "Producer",
    "ProducerContext",
    "ProducerKind",
    "choose_collate",
    "make_producer",
    "packs_fields",
]
