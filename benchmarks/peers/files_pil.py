"""One file per sample, Pillow, a torch DataLoader: the Dataset that most training scripts begin with.

The crops are those of torchvision's transforms on PIL images: the same rules, the same Pillow calls.
With Pillow-SIMD in Pillow's place the same file is another peer.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.collate import channels_first
from benchmarks.peers.crops import center_places, random_box
from benchmarks.peers.normalize import to_floats

__all__ = ["FileDataset", "center_224", "crop_32", "loader", "photo_loader", "random_224", "random_floats"]

Transform = Callable[[Image.Image], Any]


class FileDataset(Dataset[tuple[torch.Tensor, int]]):
    """Picture files and their classes; gives what ``transform`` makes of an RGB picture as a tensor, and the class."""

    def __init__(self, paths: Sequence[Path], labels: Sequence[int], transform: Transform | None = None) -> None:
        self.paths = paths
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as file:
            image = file.convert("RGB")
        made = image if self.transform is None else self.transform(image)
        tensor = made if isinstance(made, torch.Tensor) else torch.from_numpy(np.array(made))
        return tensor, int(self.labels[index])


def random_224(image: Image.Image) -> Image.Image:
    """RandomResizedCrop(224), RandomHorizontalFlip()."""
    left, top, width, height = random_box(*image.size)
    box = (left, top, left + width, top + height)
    return _flipped(image.crop(box).resize((224, 224), Image.Resampling.BILINEAR))


def random_floats(image: Image.Image) -> torch.Tensor:
    """RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(), Normalize(...): (3, 224, 224) float32."""
    return to_floats(np.array(random_224(image)))


def center_224(image: Image.Image) -> Image.Image:
    """Resize(256), CenterCrop(224)."""
    width, height, left, top = center_places(*image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
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
    folder: Path,
    labels: Path,
    *,
    batch_size: int,
    workers: int,
    transform: Transform | None = None,
    shuffle: bool = False,
    collate: Callable[[Any], Any] = channels_first,
) -> DataLoader[tuple[torch.Tensor, int]]:
    """A DataLoader over a flat folder and a pickle ``{file name: class}``, workers kept between epochs."""
    numbers = pickle.loads(labels.read_bytes())
    names = sorted(numbers)
    return _loader(
        FileDataset([folder / name for name in names], [numbers[name] for name in names], transform),
        batch_size=batch_size,
        workers=workers,
        shuffle=shuffle,
        collate=collate,
    )


def photo_loader(
    folder: Path, *, batch_size: int, workers: int, transform: Transform
) -> DataLoader[tuple[torch.Tensor, int]]:
    """The same over class folders."""
    paths = sorted(folder.glob("*/*"))
    classes = sorted({path.parent.name for path in paths})
    labels = [classes.index(path.parent.name) for path in paths]
    return _loader(FileDataset(paths, labels, transform), batch_size=batch_size, workers=workers)


def _loader(
    dataset: FileDataset,
    *,
    batch_size: int,
    workers: int,
    shuffle: bool = False,
    collate: Callable[[Any], Any] = channels_first,
) -> DataLoader[tuple[torch.Tensor, int]]:
    return DataLoader(
        dataset,
        batch_size,
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate,
    )
