"""A folder of picture files read one by one with Pillow, as most training scripts start out; for comparison."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from fastio.codec.pillow import PLUGIN_ERRORS
from fastio.errors import SampleError, SchemaError, SourceError
from fastio.machine import rank_and_world
from fastio.store import holds_shards
from fastio.types.picture_kinds import PICTURE_EXTENSIONS

__all__ = ["FolderDataset", "folder_loader", "is_picture_folder", "opens_per_s", "picture_files"]

_SUFFIXES = frozenset(f".{extension}" for extension in PICTURE_EXTENSIONS)


class FolderDataset(Dataset[tuple[torch.Tensor, int]]):
    """
    Picture files below ``folder``, sorted: returns uint8 (3, H, W) and the number of the file's class folder.

    ``transform`` gets a PIL image and returns one. Files directly in ``folder`` belong to class 0, named ".".
    """

    def __init__(self, folder: str | Path, transform: Callable[[Image.Image], Image.Image] | None = None) -> None:
        self.folder = os.fspath(folder)
        self.paths = picture_files(folder)
        parents = sorted({path.rpartition(os.sep)[0] for path in self.paths})
        numbers = {parent: number for number, parent in enumerate(parents)}
        self.classes = [os.path.relpath(parent, folder) for parent in parents]
        self.labels = np.array([numbers[path.rpartition(os.sep)[0]] for path in self.paths], np.int64)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except PLUGIN_ERRORS as exc:
            raise SampleError(f"{path}: Pillow cannot read it ({exc}): remove or repair the file") from exc
        if self.transform is not None:
            image = self.transform(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), int(self.labels[index])


def opens_per_s(kind: str, samples_per_s: float) -> float | None:
    """
    Return how many files are opened per second while data of this kind is loaded; None for a user's loader.

    Each sample of a folder is one opened file. A store is opened once, before the first batch.
    """
    return {"folder": samples_per_s, "store": 0.0}.get(kind)


def folder_loader(
    dataset: FolderDataset, batch_size: int, *, shuffle: bool, settings: Mapping[str, Any]
) -> DataLoader[tuple[torch.Tensor, int]]:
    """Return torch's DataLoader over the files of this rank; ``settings`` are its further arguments."""
    rank, world_size = rank_and_world()
    if world_size > 1:
        settings = {**settings, "sampler": DistributedSampler(dataset, world_size, rank, shuffle=shuffle)}
    elif shuffle:
        settings = {**settings, "shuffle": True}
    return DataLoader(dataset, batch_size, collate_fn=partial(_collate, dataset.folder), **settings)


def _collate(folder: str, samples: list[tuple[torch.Tensor, int]]) -> list[torch.Tensor]:
    """Collate as torch does by default; raise SchemaError if the pictures of ``folder`` differ in size."""
    first = samples[0][0].shape
    for picture, _ in samples:
        if picture.shape != first:
            sizes = " and ".join(f"{shape[2]}x{shape[1]}" for shape in (first, picture.shape))
            raise SchemaError(
                f"{folder}: pictures of different sizes in one batch ({sizes}): make them equal with --crop SIZE"
            )
    batch: list[torch.Tensor] = default_collate(samples)
    return batch


def is_picture_folder(path: str | Path) -> bool:
    """Return whether a path is a folder to be read file by file: one with tar shards in it is a store."""
    return Path(path).is_dir() and not holds_shards(path)


def picture_files(folder: str | Path) -> list[str]:
    """
    Return the sorted paths of all picture files below ``folder``, by suffix. Raises SourceError if there are none.
    """
    paths = sorted(path for path in _files(str(folder)) if Path(path).suffix.lower() in _SUFFIXES)
    if not paths:
        raise SourceError(f"{folder}: no picture files in it (looked for {', '.join(sorted(_SUFFIXES))})")
    return paths


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry.path
