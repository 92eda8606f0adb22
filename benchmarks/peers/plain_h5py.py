"""The packing script that everybody writes for HDF5: one array of bytes, offsets beside it."""

from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np

__all__ = ["pack"]


def pack(folder: Path, labels: Path, out: Path) -> None:
    """Write all files' bytes one after the other, their offsets and their classes."""
    classes = pickle.loads(labels.read_bytes())
    names = sorted(classes)
    sizes = np.array([(folder / name).stat().st_size for name in names])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    with h5py.File(out, "w") as file:
        data = file.create_dataset("data", shape=(int(offsets[-1]),), dtype="u1")
        for index, name in enumerate(names):
            data[offsets[index] : offsets[index + 1]] = np.frombuffer((folder / name).read_bytes(), np.uint8)
        file["offsets"] = offsets
        file["label"] = np.array([classes[name] for name in names])
