"""SPDL: files through FFmpeg's decoder and filters; a photo is decoded for each of its views."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import spdl.io
from spdl.pipeline import PipelineBuilder

from benchmarks.peers.crops import random_box
from benchmarks.trainings.work import CROPS, Batch, Crop, Epochs, Work, photos_of

__all__ = ["LOADERS"]


def _filters(width: int, height: int, crop: Crop) -> str:
    left, top, wide, tall = random_box(width, height, crop.scale)
    flip = ",hflip" if random.random() < 0.5 else ""
    return f"crop={wide}:{tall}:{left}:{top}:exact=1,scale={crop.side}:{crop.side}:flags=bilinear{flip},format=rgb24"


def _epochs(crops: list[Crop], repeats: int, work: Work) -> Epochs:
    paths = [str(path) for path, _ in photos_of(work)] * repeats

    def decode(path: str) -> list[Any]:
        packets = spdl.io.demux_image(path)
        filters = [_filters(packets.width, packets.height, crop) for crop in crops]
        return [spdl.io.decode_packets(packets.clone(), filter_desc=text) for text in filters]

    def batch(samples: list[list[Any]]) -> Batch:
        views = [spdl.io.to_numpy(spdl.io.convert_frames(list(frames))) for frames in zip(*samples, strict=True)]
        return [view.transpose(0, 3, 1, 2) for view in views], len(samples)

    def batches() -> Iterator[Batch]:
        random.shuffle(paths)
        threads = max(work.workers, 1)
        builder = PipelineBuilder().add_source(paths).pipe(decode, concurrency=threads)
        pipeline = builder.aggregate(work.batch_size).pipe(batch).add_sink(2).build(num_threads=threads)
        with pipeline.auto_stop():
            yield from pipeline

    return Epochs(batches)


def _each(training: str) -> list[Crop]:
    return [Crop(1, crop.side, crop.scale) for crop in CROPS[training] for _ in range(crop.count)]


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {
    "SPDL": {
        "dinov2-crops": partial(_epochs, _each("dinov2-crops"), 1),
        "simclr": partial(_epochs, _each("simclr"), 1),
        "repeats": partial(_epochs, [Crop(1, 224, (0.08, 1.0))], 3),
    }
}
