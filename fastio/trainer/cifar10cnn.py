"""The small network with four convolutions that courses train on CIFAR-10: Adam, 1e-4, batches of 128."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from fastio.trainer.pictures import Classification
from fastio.trainer.workload import Workload

__all__ = ["CIFAR10CNN", "cifar10cnn"]

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
