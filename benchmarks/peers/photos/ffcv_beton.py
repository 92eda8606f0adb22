"""
FFCV: one .beton file, decoders compiled by numba.

``variant`` is how the photos are kept: "jpg" (encoded anew at quality 90), "recipe" (its ImageNet recipe: longest side
500, half of them raw, half JPEG at quality 90) or "raw" (longest side 500, decoded).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

from benchmarks.peers.work import MEAN, STD, Work, names_and_numbers

__all__ = ["loader", "pack"]

MODES: dict[str, dict[str, Any]] = {
    "jpg": {"write_mode": "jpg"},
    "recipe": {"write_mode": "proportion", "compress_probability": 0.5, "max_resolution": 500},
    "raw": {"write_mode": "raw", "max_resolution": 500},
}


class _Photos:
    def __init__(self, work: Work) -> None:
        self.items = [(work.source / name, number) for name, number in names_and_numbers(work).items()]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, number = self.items[index]
        return np.array(Image.open(path).convert("RGB")), number


def pack(work: Work) -> None:
    """One .beton file."""
    fields = {"image": RGBImageField(jpeg_quality=90, **MODES[work.variant]), "label": IntField()}
    writer = DatasetWriter(str(work.packed / "train.beton"), fields, num_workers=work.workers)
    writer.from_indexed_dataset(_Photos(work))


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    decoders: list[Any]
    if work.is_random:
        decoders = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    else:
        decoders = [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)]
    if work.task == "floats_224":
        levels = [np.array([255 * value for value in values], np.float32) for values in (MEAN, STD)]
        decoders.append(NormalizeImage(*levels, np.float32))
    return Loader(
        str(work.packed / "train.beton"),
        batch_size=work.batch_size,
        num_workers=work.workers,
        order=OrderOption.QUASI_RANDOM if work.is_random else OrderOption.SEQUENTIAL,
        os_cache=True,
        drop_last=False,
        pipelines={
            "image": [*decoders, ToTensor(), ToTorchImage(channels_last=True)],
            "label": [IntDecoder(), ToTensor()],
        },
    )
