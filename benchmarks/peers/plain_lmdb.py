"""The packing script that everybody writes for LMDB, and reading it back with the same library."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.collate import channels_first

__all__ = ["PlainLmdb", "loader", "pack"]

Decode = Callable[[Any], NDArray[np.uint8]]


def pack(folder: Path, labels: Path, out: Path) -> None:
    """
    Write every file of the folder under a running number, its class before the bytes.

    As lean as such a script gets: names from one listing, no look at a file but to read it, room for any size,
    one transaction that appends, one sync.
    """
    with open(labels, "rb") as file:  # noqa: PTH123 - plain calls are what is measured
        classes = pickle.load(file)
    with lmdb.open(str(out), map_size=1 << 34, subdir=False, lock=False, sync=False) as env:
        with env.begin(write=True) as txn:
            names = sorted(os.listdir(folder))  # noqa: PTH208
            for index, name in enumerate(names):
                with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
                    data = file.read()
                txn.put(b"%08d" % index, classes[name].to_bytes(8, "little") + data, append=True)
            txn.put(b"length", b"%d" % len(names))
        env.sync(True)


class PlainLmdb(Dataset[tuple[torch.Tensor, int]]):
    """What ``pack`` wrote; gives (H, W, 3) uint8 and the class. The environment is opened in the worker."""

    def __init__(self, path: Path, decode: Decode) -> None:
        self.path = path
        self.decode = decode
        self.env: lmdb.Environment | None = None
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
            self.length = int(txn.get(b"length"))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.env is None:
            self.env = lmdb.open(str(self.path), subdir=False, readonly=True, lock=False)
        with self.env.begin(buffers=True) as txn:
            value = txn.get(b"%08d" % index)
            number = int.from_bytes(value[:8], "little")
            return torch.from_numpy(self.decode(value[8:])), number


def with_pillow(data: Any) -> NDArray[np.uint8]:
    """The picture as Pillow decodes it, (H, W, 3)."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image.convert("RGB"))


def loader(
    path: Path, *, batch_size: int, workers: int, decode: Decode = with_pillow, shuffle: bool = False
) -> DataLoader[tuple[torch.Tensor, int]]:
    """A DataLoader over the environment, workers kept between epochs."""
    return DataLoader(
        PlainLmdb(path, decode),
        batch_size,
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=channels_first,
    )
