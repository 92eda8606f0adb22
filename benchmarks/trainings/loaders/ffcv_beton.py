"""FFCV: a .beton file with JPEGs encoded anew at quality 90; a photo is decoded for each crop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

from benchmarks.trainings.work import Batch, Epochs, Work, arrays_of, photos_of

__all__ = ["LOADERS", "pack"]


class _Photos:
    def __init__(self, work: Work) -> None:
        self._items = photos_of(work)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, number = self._items[index]
        return np.array(Image.open(path).convert("RGB")), number


def pack(work: Work) -> None:
    """One .beton file."""
    fields = {"image": RGBImageField(jpeg_quality=90, write_mode="jpg"), "label": IntField()}
    DatasetWriter(str(work.packed / "photos.beton"), fields, num_workers=1).from_indexed_dataset(_Photos(work))


def _repeats(work: Work) -> Epochs:
    decoders = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    loader = Loader(
        str(work.packed / "photos.beton"),
        batch_size=work.batch_size,
        num_workers=max(work.workers, 1),
        order=OrderOption.RANDOM,
        indices=np.tile(np.arange(len(photos_of(work))), 3),
        os_cache=True,
        drop_last=False,
        pipelines={
            "image": [*decoders, ToTensor(), ToTorchImage(channels_last=True)],
            "label": [IntDecoder(), ToTensor()],
        },
    )
    return arrays_of(loader, lambda batch: ([batch[0]], len(batch[0])))


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {"FFCV": {"repeats": _repeats}}
