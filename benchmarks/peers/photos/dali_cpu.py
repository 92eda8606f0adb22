"""NVIDIA DALI's pipeline for CPUs, over files: decoding of the crop alone, an antialiased resize."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader"]


@pipeline_def
def _photos(work: Work) -> Any:
    numbers = names_and_numbers(work)
    encoded, labels = fn.readers.file(
        files=[str(work.source / name) for name in numbers],
        labels=list(numbers.values()),
        random_shuffle=work.task == "random_224",
        name="files",
    )
    if work.task == "random_224":
        images = fn.decoders.image_random_crop(
            encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], adjust_orientation=False
        )
        images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR)
        images = fn.flip(images, horizontal=fn.random.coin_flip())
    else:
        images = fn.decoders.image(encoded, adjust_orientation=False)
        images = fn.resize(images, resize_shorter=256, interp_type=types.INTERP_LINEAR)
        images = fn.crop(images, crop=(224, 224), rounding="truncate")
    return images, labels


class _Epochs:
    """Epoch after epoch of one pipeline."""

    def __init__(self, work: Work) -> None:
        self.pipeline = _photos(work, batch_size=work.batch_size, num_threads=work.workers, device_id=None, seed=1)
        self.pipeline.build()
        self.batches = self.pipeline.epoch_size("files") // work.batch_size

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.batches):
            images, labels = self.pipeline.run()
            yield images.as_array().transpose(0, 3, 1, 2), np.asarray(labels.as_array())


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers; the set is a multiple of the batch, DALI would begin it anew."""
    return _Epochs(work)
