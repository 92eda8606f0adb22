"""NVIDIA DALI's pipeline for CPUs, over files: decoding of the crop alone, an antialiased resize."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from benchmarks.peers.work import MEAN, STD, Work, names_and_numbers

__all__ = ["loader"]


@pipeline_def
def _photos(work: Work) -> Any:
    numbers = names_and_numbers(work)
    encoded, labels = fn.readers.file(
        files=[str(work.source / name) for name in numbers],
        labels=list(numbers.values()),
        random_shuffle=work.is_random,
        name="files",
    )
    if work.is_random:
        images = fn.decoders.image_random_crop(
            encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], adjust_orientation=False
        )
        images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR)
        images = _mirrored(images, floats=work.task == "floats_224")
    else:
        images = fn.decoders.image(encoded, adjust_orientation=False)
        images = fn.resize(images, resize_shorter=256, interp_type=types.INTERP_LINEAR)
        images = fn.crop(images, crop=(224, 224), rounding="truncate")
    return images, labels


def _mirrored(images: Any, *, floats: bool) -> Any:
    """Half of the pictures flipped; as floats also normalised and with the channels first, in the same pass."""
    mirror = fn.random.coin_flip()
    if not floats:
        return fn.flip(images, horizontal=mirror)
    mean, std = ([255 * value for value in values] for values in (MEAN, STD))
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror)


class _Epochs:
    """Epoch after epoch of one pipeline."""

    def __init__(self, work: Work) -> None:
        self.pipeline = _photos(work, batch_size=work.batch_size, num_threads=work.workers, device_id=None, seed=1)
        self.pipeline.build()
        self.channels_first = work.task == "floats_224"
        self.batches = self.pipeline.epoch_size("files") // work.batch_size

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.batches):
            images, labels = self.pipeline.run()
            pixels = images.as_array()
            yield pixels if self.channels_first else pixels.transpose(0, 3, 1, 2), np.asarray(labels.as_array())


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers; the set is a multiple of the batch, DALI would begin it anew."""
    return _Epochs(work)
