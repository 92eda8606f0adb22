"""Ways to make batches ahead of the loop: native jobs, the dataset's own samples in threads, samples that are kept."""

from __future__ import annotations

from fastio.producer.base import Made, Means, OnError, Producer, UnderWay
from fastio.producer.native import NativeProducer
from fastio.producer.plain import PlainProducer
from fastio.producer.resident import Cache, Kept, ResidentProducer, check_cache, in_ram, what_to_keep

__all__ = [
    "Cache",
    "Kept",
    "Made",
    "Means",
    "NativeProducer",
    "OnError",
    "PlainProducer",
    "Producer",
    "ResidentProducer",
    "UnderWay",
    "check_cache",
    "in_ram",
    "what_to_keep",
]
