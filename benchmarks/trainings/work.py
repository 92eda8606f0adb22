"""The pipelines: crops and flips of each view, by FastLoader and by a DataLoader with Pillow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from fastio import FastLoader
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

__all__ = ["LOADERS", "TRAININGS", "Crop", "Work"]


@dataclass(frozen=True, slots=True)
class Crop:
    """So many views of one kind: RandomResizedCrop and a flip."""

    count: int
    side: int
    scale: tuple[float, float]


TRAININGS: dict[str, Sequence[Crop]] = {
    "DINOv2: 2 x 224 and 8 x 96": (Crop(2, 224, (0.32, 1.0)), Crop(8, 96, (0.05, 0.32))),
    "SimCLR: 2 x 224": (Crop(2, 224, (0.08, 1.0)),),
}


@dataclass(frozen=True, slots=True)
class Work:
    """Photos in class folders, the store that they were packed into, and how both are loaded."""

    photos: Path
    packed: Path
    batch_size: int
    workers: int


def fastio(work: Work, crops: Sequence[Crop]) -> Iterable[Any]:
    """FastLoader with views."""
    views = [(crop.count, [RandomResizedCrop(crop.side, scale=crop.scale), RandomHorizontalFlip()]) for crop in crops]
    return FastLoader(work.packed, work.batch_size, shuffle=True, views=views, threads=max(work.workers, 1))


def plain(work: Work, crops: Sequence[Crop]) -> Iterable[Any]:
    """A Dataset of files that decodes each with Pillow, once, and crops it for each view."""
    return DataLoader(Photos(work.photos, crops), work.batch_size, shuffle=True, num_workers=work.workers)


LOADERS: dict[str, Callable[[Work, Sequence[Crop]], Iterable[Any]]] = {"fastio": fastio, "files, Pillow": plain}


class Photos(Dataset[Any]):
    """Views of photos in class folders, and their class."""

    def __init__(self, folder: Path, crops: Sequence[Crop]) -> None:
        classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self._files = [
            (path, number) for number, name in enumerate(classes) for path in sorted((folder / name).iterdir())
        ]
        self._crops = crops

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Any:
        path, label = self._files[index]
        with Image.open(path) as file:
            picture = file.convert("RGB")
        return [_view(picture, crop) for crop in self._crops for _ in range(crop.count)], label


def _view(picture: Image.Image, crop: Crop) -> torch.Tensor:
    left, top, width, height = _box(picture.width, picture.height, crop.scale)
    part = picture.crop((left, top, left + width, top + height))
    view = part.resize((crop.side, crop.side), Image.Resampling.BILINEAR)
    if torch.rand(1) < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(view)).permute(2, 0, 1).contiguous()


def _box(width: int, height: int, scale: tuple[float, float]) -> tuple[int, int, int, int]:
    """Draw a part of this share and of an aspect ratio from 3:4 to 4:3, in at most ten attempts."""
    ratio = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(*scale).item()
        aspect = math.exp(torch.empty(1).uniform_(*ratio).item())
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(torch.randint(width - w + 1, (1,))), int(torch.randint(height - h + 1, (1,))), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side
