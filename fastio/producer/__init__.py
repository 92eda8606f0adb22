"""Two ways to make batches ahead of the training loop: native jobs, or the dataset's own samples in threads."""

from __future__ import annotations

from fastio.producer.base import Made, OnError, Producer, UnderWay
from fastio.producer.native import NativeProducer
from fastio.producer.plain import PlainProducer

__all__ = ["Made", "NativeProducer", "OnError", "PlainProducer", "Producer", "UnderWay"]
