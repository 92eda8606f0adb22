"""A small ResNet with MixUp or CutMix, one of them drawn for each batch, and two functions of its own in the list.

    $ fastio pack photos/ photos.lmdb                           # a folder for each class
    $ python mixing.py photos.lmdb --epochs 10

`PerSample` gets one picture, and its random numbers belong to seed, epoch and sample; `PerBatch` gets the batch.
"""

import argparse

import numpy as np
import torch
from torch import nn

from fastio import FastDataset, FastLoader
from fastio.transforms import (
    CutMix,
    MixUp,
    Normalize,
    OneOf,
    PerBatch,
    PerSample,
    RandomHorizontalFlip,
    RandomResizedCrop,
)


def with_noise(picture: torch.Tensor, numbers: np.ndarray) -> torch.Tensor:
    """Noise of a strength of its own; the seed of the noise is a number of the sample's, too."""
    random = torch.Generator().manual_seed(int(numbers[0] * 2**32))
    noise = torch.randn(picture.shape, generator=random) * 16 * numbers[1]
    return (picture + noise).clamp(0, 255).to(picture.dtype)


def smoothed(batch: list[torch.Tensor], share: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels (B, classes), a tenth of which goes to all classes alike."""
    images, labels = batch
    return images, labels * (1 - share) + share / labels.shape[1]


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("size", 64), ("batch-size", 32), ("epochs", 10)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)

photos = FastDataset(options.store)
assert photos.labels is not None, "pack class folders, or --labels"
classes = int(photos.labels.max()) + 1
steps = [
    RandomResizedCrop(options.size),
    RandomHorizontalFlip(),
    PerSample(with_noise, draws=2),
    OneOf([MixUp(0.8, num_classes=classes), CutMix(1.0, num_classes=classes)]),
    PerBatch(smoothed),
    Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(64, classes),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
with FastLoader(photos, options.batch_size, shuffle=True, drop_last=True, transforms=steps) as loader:
    for epoch in range(options.epochs):
        losses = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
