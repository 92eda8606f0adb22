"""One file per sample, Pillow, a torch DataLoader: the Dataset that most training scripts begin with.

The crops are those of torchvision's transforms on PIL images: the same rules, the same Pillow calls.
"""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

__all__ = ["FileDataset", "center_224", "crop_32", "loader", "photo_loader", "random_224"]

Transform = Callable[[Image.Image], Image.Image]


class FileDataset(Dataset[tuple[torch.Tensor, int]]):
    """Picture files and their classes; gives (3, H, W) uint8 and the class."""

    def __init__(self, paths: Sequence[Path], labels: Sequence[int], transform: Transform | None = None) -> None:
        self.paths = paths
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as file:
            image = file.convert("RGB")
        if self.transform is not None:
            image = self.transform(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), int(self.labels[index])


def random_224(image: Image.Image) -> Image.Image:
    """RandomResizedCrop(224), RandomHorizontalFlip()."""
    width, height = image.size
    left, top, w, h = (width - min(image.size)) // 2, (height - min(image.size)) // 2, *[min(image.size)] * 2
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top, w, h = random.randint(0, width - wide), random.randint(0, height - tall), wide, tall
            break
    return _flipped(image.crop((left, top, left + w, top + h)).resize((224, 224), Image.Resampling.BILINEAR))


def center_224(image: Image.Image) -> Image.Image:
    """Resize(256), CenterCrop(224)."""
    short = min(image.size)
    width, height = (int(256 * side / short) for side in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - 224) / 2), round((height - 224) / 2)
    return resized.crop((left, top, left + 224, top + 224))


def crop_32(image: Image.Image) -> Image.Image:
    """RandomCrop(32, padding=4), RandomHorizontalFlip(), of a 32x32 picture."""
    padded = Image.new("RGB", (40, 40))
    padded.paste(image, (4, 4))
    left, top = random.randint(0, 8), random.randint(0, 8)
    return _flipped(padded.crop((left, top, left + 32, top + 32)))


def _flipped(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def loader(
    folder: Path, labels: Path, *, batch_size: int, workers: int, transform: Transform | None = None
) -> DataLoader[tuple[torch.Tensor, int]]:
    """A DataLoader over a flat folder and a pickle ``{file name: class}``, in order, workers kept between epochs."""
    numbers = pickle.loads(labels.read_bytes())
    names = sorted(numbers)
    return _loader(
        FileDataset([folder / name for name in names], [numbers[name] for name in names], transform),
        batch_size=batch_size,
        workers=workers,
    )


def photo_loader(
    folder: Path, *, batch_size: int, workers: int, transform: Transform
) -> DataLoader[tuple[torch.Tensor, int]]:
    """The same over class folders."""
    paths = sorted(folder.glob("*/*"))
    classes = sorted({path.parent.name for path in paths})
    labels = [classes.index(path.parent.name) for path in paths]
    return _loader(FileDataset(paths, labels, transform), batch_size=batch_size, workers=workers)


def _loader(dataset: FileDataset, *, batch_size: int, workers: int) -> DataLoader[tuple[torch.Tensor, int]]:
    return DataLoader(dataset, batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0)
