"""SPDL: files through FFmpeg's decoder and filters, in threads of its Pipeline."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from benchmarks.peers.crops import random_box
from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader"]

CENTER = "scale=256:256:force_original_aspect_ratio=increase:flags=bilinear,crop=224:224,format=rgb24"


class _Epochs:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.items = [(str(work.source / name), number) for name, number in names_and_numbers(work).items()]

    def __iter__(self) -> Iterator[Any]:
        if self.work.is_random:
            random.shuffle(self.items)
        pipeline = (
            PipelineBuilder()
            .add_source(self.items)
            .pipe(self._decode, concurrency=self.work.workers)
            .aggregate(self.work.batch_size)
            .pipe(_batch)
            .add_sink(2)
            .build(num_threads=self.work.workers)
        )
        with pipeline.auto_stop():
            yield from pipeline

    def _decode(self, item: tuple[str, int]) -> tuple[Any, int]:
        path, number = item
        packets = spdl.io.demux_image(path)
        filters = _random_crop(packets.width, packets.height) if self.work.is_random else CENTER
        return spdl.io.decode_packets(packets, filter_desc=filters), number


def _random_crop(width: int, height: int) -> str:
    left, top, wide, tall = random_box(width, height)
    flip = ",hflip" if random.random() < 0.5 else ""
    return f"crop={wide}:{tall}:{left}:{top}:exact=1,scale=224:224:flags=bilinear{flip},format=rgb24"


def _batch(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
    images = spdl.io.to_numpy(spdl.io.convert_frames([frames for frames, _ in samples]))
    return images.transpose(0, 3, 1, 2), np.array([number for _, number in samples])


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers; a pipeline serves one epoch."""
    return _Epochs(work)
