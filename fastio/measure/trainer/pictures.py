"""Classification of pictures: by ResNet-50, or by the small network that courses train on CIFAR-10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fastio.errors import FastioError
from fastio.measure.trainer.step import Workload
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.finish import ChannelsLast, Finish, Normalize, ToDtype

__all__ = [
    "CIFAR10CNN",
    "RESNET50",
    "Classification",
    "ResNet50",
    "cifar10cnn",
]


# Classification: pictures with one class each.


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """
    Batches of ``(images, labels)``: images (B, *shape), uint8 or already normalised, and labels int64 (B,).

    ``mean`` and ``std`` are per channel. ``any_size`` means that the network takes pictures of other sizes too.
    """

    shape: tuple[int, int, int]
    outputs: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    any_size: bool = False

    def prepared(self, batch: Any, layout: torch.memory_format) -> tuple[torch.Tensor, torch.Tensor]:
        """Convert uint8 pictures to normalised float32; floating pictures count as normalised. Both get ``layout``."""
        images, labels = batch
        if images.dtype == torch.uint8:
            images = Normalize(self.mean, self.std).after(Finish(images.dtype)).run(images)
        return images.contiguous(memory_format=layout), labels

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """Return the cross entropy."""
        images, labels = batch
        return functional.cross_entropy(network(images), labels)

    def random_batch(self, batch_size: int, generator: torch.Generator) -> list[torch.Tensor]:
        """Return uint8 noise and random classes."""
        images = torch.randint(0, 256, (batch_size, *self.shape), dtype=torch.uint8, generator=generator)
        return [images, torch.randint(0, self.outputs, (batch_size,), generator=generator)]

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """Return what normalises in one pass, in the dtype that the network computes in."""
        return [Normalize(self.mean, self.std), ToDtype(dtype), *([ChannelsLast()] if channels_last else [])]

    def check(self, batch: Any, where: str) -> None:
        expected = f"expected pictures (B, {', '.join(map(str, self.shape))}) and labels (B,)"
        if not (isinstance(batch, (tuple, list)) and len(batch) == 2 and all(map(torch.is_tensor, batch))):
            raise FastioError(f"{where}: {expected}, got {_kind(batch)}: pack with labels, or choose another --model")
        images, labels = batch
        channels, height, width = self.shape
        if images.ndim != 4 or images.shape[1] != channels:
            raise FastioError(f"{where}: {expected}, got {tuple(images.shape)}: choose another --model")
        if not self.any_size and tuple(images.shape[2:]) != (height, width):
            size = f"{images.shape[3]}x{images.shape[2]}"
            raise FastioError(f"{where}: expected pictures of {width}x{height}, got {size}: add --crop {width}")
        if labels.ndim != 1 or labels.is_floating_point():
            raise FastioError(f"{where}: {expected} of integers, got {labels.dtype} {tuple(labels.shape)}")
        self.check_labels(int(labels.min()), int(labels.max()), where)

    def check_labels(self, least: int, most: int, where: str) -> None:
        """Raise FastioError if the network has no output for a class."""
        if least < 0 or most >= self.outputs:
            raise FastioError(
                f"{where}: labels from {least} to {most}, but the model has {self.outputs} classes, 0 to "
                f"{self.outputs - 1}: choose another --model"
            )


def _kind(batch: Any) -> str:
    """Describe a batch in words."""
    if torch.is_tensor(batch):
        return f"a tensor {tuple(batch.shape)} alone"
    if isinstance(batch, (tuple, list)):
        return f"{len(batch)} parts"
    return "a dict with " + ", ".join(batch) if isinstance(batch, dict) else type(batch).__name__


_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, width, stride of the first block
_EXPANSION = 4
# The usual ones of ImageNet's channels, for values from 0 to 1.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ResNet50(nn.Module):
    """
    He et al., "Deep Residual Learning for Image Recognition", table 1, 50 layers; any pictures (B, 3, H, W).

    Version 1.5 has the stride of a block in its 3x3 convolution, not in the first 1x1. 25,557,032 parameters with
    1000 classes.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = 64
        for count, width, stride in _STAGES:
            for number in range(count):
                blocks.append(_Bottleneck(channels, width, stride if number == 0 else 1))
                channels = width * _EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores (B, classes)."""
        scores: torch.Tensor = self.head(self.blocks(self.stem(images)))
        return scores


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut around them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * _EXPANSION
        self.body = nn.Sequential(
            *_normed_convolution(channels, width, 1),
            nn.ReLU(inplace=True),
            *_normed_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_normed_convolution(width, out, 1),
        )
        is_same = stride == 1 and channels == out
        self.around = nn.Identity() if is_same else nn.Sequential(*_normed_convolution(channels, out, 1, stride))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.around(images), inplace=True)


def _normed_convolution(channels: int, filters: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, bias=False)
    return convolution, nn.BatchNorm2d(filters)


RESNET50 = Workload(
    name="resnet50",
    task=Classification(shape=(3, 224, 224), outputs=1000, mean=_IMAGENET_MEAN, std=_IMAGENET_STD, any_size=True),
    batch_size=256,
    build=ResNet50,
    # Section 3.4 of the paper, for batches of 256.
    optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4),
)


# The small network with four convolutions that courses train on CIFAR-10: Adam, 1e-4, batches of 128.

# Mean and standard deviation of the channels of CIFAR-10's 50,000 training pictures, for values from 0 to 1.
_CIFAR10_MEAN, _CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def cifar10cnn(classes: int = 10) -> nn.Sequential:
    """
    Return the network: twice two convolutions and a pooling, then two fully connected layers; pictures (B, 3, 32,
    32).
    """
    return nn.Sequential(
        *_convolution(3, 32),
        *_convolution(32, 32),
        nn.MaxPool2d(2),
        *_convolution(32, 64),
        *_convolution(64, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def _convolution(channels: int, filters: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()


CIFAR10CNN = Workload(
    name="cifar10cnn",
    task=Classification(shape=(3, 32, 32), outputs=10, mean=_CIFAR10_MEAN, std=_CIFAR10_STD),
    batch_size=128,
    build=cifar10cnn,
    optimizer=partial(torch.optim.Adam, lr=1e-4),
)
