"""Folders of small pictures as users have them, made from a seed."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

CLASSES = ("bee", "cat", "dog")


def picture(seed: int, *, kind: str = "PNG", size: tuple[int, int] = (6, 5), mode: str = "RGB") -> bytes:
    """An encoded picture of ``size`` (width, height)."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


def flat(folder: Path, count: int = 7) -> dict[str, int]:
    """PNGs ``0000.png``, ... in one folder; gives their labels back."""
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:04d}.png").write_bytes(picture(i))
    return {f"{i:04d}.png": i % 3 for i in range(count)}


def pickled(path: Path, labels: Mapping[object, object], protocol: int = 4) -> Path:
    """A label file as users have it."""
    path.write_bytes(pickle.dumps(dict(labels), protocol))
    return path


def class_folders(folder: Path, count: int = 3) -> list[str]:
    """PNG and JPEG files of different sizes in class folders, some nested; gives the keys in ImageFolder's order."""
    keys = []
    for c, name in enumerate(CLASSES):
        for i in range(count):
            kind, extension = (("PNG", "png"), ("JPEG", "JPEG"), ("JPEG", "jpg"))[i % 3]
            key = f"{name}/{'deep/' if i == 1 else ''}{i}.{extension}"
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(picture(c * 100 + i, kind=kind, size=(8 + i, 4 + c)))
            keys.append(key)
    return sorted(keys, key=lambda key: key.rpartition("/")[::2])


def foreign_tar(path: Path, count: int = 5) -> Path:
    """A shard as webdataset's writer leaves it: pictures with their .cls."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for i in range(count):
            for extension, data in (("cls", str(i % 3).encode()), ("png", picture(i))):
                member = tarfile.TarInfo(f"{i:04d}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file by its path below the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class _Python2(pickle._Pickler):
    """Writes bytes as Python 2 does: as its str."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value: bytes) -> None:
        """SHORT_BINSTRING or BINSTRING, not remembered."""
        head = struct.pack("<cB", b"U", len(value)) if len(value) < 256 else struct.pack("<ci", b"T", len(value))
        self.write(head + value)

    dispatch[bytes] = save_bytes


def python_2_pickle(value: object) -> bytes:
    """A pickle as Python 2 writes it, bytes for its str."""
    file = io.BytesIO()
    _Python2(file, 2).dump(value)
    return file.getvalue()


def cifar_folder(folder: Path, *, batches: int = 5, count: int = 4) -> Path:
    """CIFAR-10 as it is downloaded: batches that Python 2 pickled, with bytes as keys, and the names of classes."""
    folder.mkdir()
    for number, name in enumerate([*(f"data_batch_{i + 1}" for i in range(batches)), "test_batch"]):
        told = f"training batch {number + 1} of {batches}" if number < batches else "testing batch 1 of 1"
        batch = {
            b"batch_label": told.encode(),
            b"data": np.random.default_rng(number).integers(0, 256, (count, 3072), np.uint8),
            b"labels": [(number + i) % 10 for i in range(count)],
            b"filenames": [f"{name}_{i}.png".encode() for i in range(count)],
        }
        (folder / name).write_bytes(python_2_pickle(batch))
    (folder / "batches.meta").write_bytes(python_2_pickle({b"label_names": [f"c{i}".encode() for i in range(10)]}))
    return folder


def tree(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """A folder with these files below it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
