"""One file per sample, Pillow, a torch DataLoader: the Dataset that most training scripts begin with."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

__all__ = ["FileDataset", "loader"]


class FileDataset(Dataset[tuple[torch.Tensor, int]]):
    """A flat folder of pictures and a pickle ``{file name: class}``; gives (3, H, W) uint8 and the class."""

    def __init__(self, folder: Path, labels: Path) -> None:
        self.folder = folder
        self.labels = pickle.loads(labels.read_bytes())
        self.names = sorted(self.labels)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        name = self.names[index]
        with Image.open(self.folder / name) as image:
            pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1), int(self.labels[name])


def loader(folder: Path, labels: Path, *, batch_size: int, workers: int) -> DataLoader[tuple[torch.Tensor, int]]:
    """A DataLoader over the files, in order, workers kept between epochs."""
    return DataLoader(
        FileDataset(folder, labels), batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0
    )
