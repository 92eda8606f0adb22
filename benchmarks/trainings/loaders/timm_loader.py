"""timm: its transforms of Pillow's pictures, its NaFlex loader, its Mixup, its sampler for repeated augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from timm.data import Mixup, create_transform
from timm.data.distributed_sampler import RepeatAugSampler
from timm.data.naflex_dataset import NaFlexMapDatasetWrapper
from timm.data.naflex_transforms import ResizeToSequence
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.trainings.work import (
    CLASSES,
    MEAN,
    PATCH,
    PATCHES,
    STD,
    Batch,
    Epochs,
    Work,
    arrays_of,
    patches_of,
    photos_of,
)

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


def _naflex(work: Work) -> Epochs:
    """Its loader for such models, at one length, with its own transforms."""

    def transform(max_seq_len: int, patch_size: tuple[int, int]) -> Any:
        resize = ResizeToSequence(patch_size[0], max_seq_len)
        steps = [transforms.RandomHorizontalFlip(), resize, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        return transforms.Compose(steps)

    dataset = NaFlexMapDatasetWrapper(
        _Photos(work, lambda picture: picture),
        patch_size=PATCH,
        seq_lens=(PATCHES,),
        max_tokens_per_batch=PATCHES * work.batch_size,
        transform_factory=transform,
        batch_divisor=1,
    )
    return arrays_of(DataLoader(dataset, batch_size=None, num_workers=work.workers), patches_of)


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {
    "timm": {"randaugment": _randaugment, "naflex": _naflex, "mix": _mix, "repeats": _repeats}
}
