"""timm: its transforms of Pillow's pictures, its Mixup and its sampler for repeated augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from timm.data import Mixup, create_transform
from timm.data.distributed_sampler import RepeatAugSampler
from torch.utils.data import DataLoader, Dataset

from benchmarks.trainings.work import CLASSES, MEAN, STD, Batch, Epochs, Work, arrays_of, photos_of

__all__ = ["LOADERS"]


class _Photos(Dataset[Any]):
    def __init__(self, work: Work, transform: Callable[[Any], Any]) -> None:
        self._items, self._transform = photos_of(work), transform

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        path, label = self._items[index]
        with Image.open(path) as file:
            return self._transform(file.convert("RGB")), label


def _transform(**options: Any) -> Any:
    return create_transform(224, is_training=True, color_jitter=None, interpolation="bilinear", **options)


def _loader(work: Work, transform: Any, **order: Any) -> DataLoader[Any]:
    return DataLoader(_Photos(work, transform), work.batch_size, num_workers=work.workers, **order)


def _first(batch: Any) -> Batch:
    return [batch[0]], len(batch[0])


def _randaugment(work: Work) -> Epochs:
    """Two operations of strength 9, as often as torchvision's defaults, with timm's list of operations."""
    transform = _transform(auto_augment="rand-m9-n2-p1.0", use_prefetcher=True)
    return arrays_of(_loader(work, transform, shuffle=True), _first)


def _mix(work: Work) -> Epochs:
    mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, switch_prob=0.5, num_classes=CLASSES)
    loader = _loader(work, _transform(mean=MEAN, std=STD), shuffle=True, drop_last=len(photos_of(work)) % 2 == 1)

    def mixed(batch: Any) -> Batch:
        pictures, labels = mix(*batch)
        return [pictures, labels], len(pictures)

    return arrays_of(loader, mixed)


def _repeats(work: Work) -> Epochs:
    """Three epochs of a third each: timm's epochs have as many pictures as there are photos."""
    transform = _transform(use_prefetcher=True)
    dataset = _Photos(work, transform)
    sampler = RepeatAugSampler(dataset, num_replicas=1, rank=0, num_repeats=3, selected_round=0, selected_ratio=1)
    sampler.num_selected_samples = 3 * len(dataset)
    return arrays_of(_loader(work, transform, sampler=sampler), _first)


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {
    "timm": {"randaugment": _randaugment, "mix": _mix, "repeats": _repeats}
}
