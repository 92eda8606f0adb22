"""Ways to make batches ahead of the loop: native jobs, the dataset's own samples in threads, samples that are kept."""

from __future__ import annotations

from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.plain import PlainProducer
from fastio.loader.producer.producer import FinishedBatch, OnError, PendingBatch, Producer, ProducerOptions
from fastio.loader.producer.resident import Cache, Kept, ResidentProducer, check_cache, in_ram, what_to_keep

__all__ = [
    "Cache",
    "FinishedBatch",
    "Kept",
    "NativeProducer",
    "OnError",
    "PendingBatch",
    "PlainProducer",
    "Producer",
    "ProducerOptions",
    "ResidentProducer",
    "check_cache",
    "in_ram",
    "what_to_keep",
]
