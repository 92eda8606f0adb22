"""ResNet-50 in plain torch, version 1.5: the stride is in the 3x3 convolution of a block."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from fastio.trainer.pictures import Classification
from fastio.trainer.workload import Workload

__all__ = ["RESNET50", "ResNet50"]

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
            *_convolution(channels, width, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, out, 1),
        )
        is_same = stride == 1 and channels == out
        self.around = nn.Identity() if is_same else nn.Sequential(*_convolution(channels, out, 1, stride))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.around(images), inplace=True)


def _convolution(channels: int, filters: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
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
