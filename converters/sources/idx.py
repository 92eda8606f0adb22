"""Reads MNIST and its relatives as they are downloaded: pixels and labels in idx files, compressed or not."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.arrays import ArraysOf, RowArray, array_source
from fastio.converters.sources.layouts.roots import chosen_part
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.source import check_memory
from fastio.converters.sources.streams import opened
from fastio.errors import SourceError, StoreError
from fastio.store.files import ByteSource, open_file
from fastio.store.kinds.layouts import idx_files
from fastio.store.kinds.scan import Problem, SourcePath, names_in

__all__ = [
    "open_idx",
]


_KIND = "idx"  # of sources
_DTYPES = {0x08: "|u1", 0x09: "|i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_AXES = 8


def open_idx(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the pictures of one part, ``train`` or ``test`` (``t10k``), or one file of pictures, with their labels.

    ``train-images-idx3-ubyte`` holds the pixels, uint8 (n, height, width), ``train-labels-idx1-ubyte`` beside it the
    labels; either may end in .gz. Pictures are raw pixels (height, width, 1), as ``--raw`` keeps them. Without a file
    of labels, the samples have none. Layout: two zero bytes, one for the type, one for the number of axes, then four
    bytes for the size of each axis and the numbers, all big-endian.
    """
    parts = idx_files(place)
    expected = "a file such as train-images-idx3-ubyte(.gz), or a folder with some"
    part, (images, labels) = chosen_part(place.path, parts, options.split, "part", expected)
    folder = place.path if place.is_folder else str(Path(place.path).parent)
    pixels, file, start = _read(f"{folder}/{images}")
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise SourceError(f"{folder}/{images}: expected pixels uint8 (n, height, width), got {_words(pixels)}")
    image = RowArray("image", (*pixels.shape, 1), pixels.dtype, pixels[..., None].__getitem__, file, start)
    arrays, files = [image if file is not None else replace(image, unfit="are compressed")], [f"{folder}/{images}"]
    if labels:
        files.append(f"{folder}/{labels}")
        numbers, _, _ = _read(files[-1])
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) != len(pixels):
            raise SourceError(f"{files[-1]}: expected {len(pixels):,} whole numbers, got {_words(numbers)}")
        arrays.append(_array("label", numbers.astype(np.int64)))
    others = []
    if place.is_folder:
        taken = {Path(file).name for file in files}
        inside = os.path.dirname(images)  # noqa: PTH120 - "" for the folder itself
        names = [name for name in names_in(f"{folder}/{inside}")[1] if name not in taken]
        others = [Problem(os.path.join(inside, name), f"is not of {part!r}") for name in names]  # noqa: PTH118
    disk_bytes = sum(Path(file).stat().st_blocks * 512 for file in files)
    return array_source(place, ArraysOf(_KIND, arrays, others, disk_bytes, files), options)


def _read(path: str) -> tuple[NDArray[np.generic], ByteSource | None, int]:
    """
    Return the numbers of an idx file, big-endian ones as they are; the file, None if it is compressed, and the byte
    that they begin at. Raises SourceError that says what is wrong.
    """
    with opened(path) as stream:
        head = stream.read(4)
        dtype = _DTYPES.get(head[2]) if len(head) == 4 and head[:2] == b"\0\0" else None
        axes = head[3] if dtype else 0
        raw = stream.read(4 * axes) if 0 < axes <= _MOST_AXES else b""
        if dtype is None or not raw or len(raw) != 4 * axes:
            raise SourceError(f"{path}: is no idx file: it begins with {head!r}; download it again")
        sizes = np.frombuffer(raw, ">u4").tolist()
        expected = math.prod(sizes) * np.dtype(dtype).itemsize
        start = 4 + 4 * axes
        if not path.lower().endswith((".gz", ".zst")):
            file = _opened(path)
            if file.size != start + expected:
                there = file.size - start
                raise SourceError(
                    f"{path}: says {sizes} numbers, {expected:,} bytes, but holds {there:,}; download it again"
                )
            return file.read(start, file.size).view(dtype).reshape(sizes), file, start
        try:
            check_memory(expected)
        except MemoryError as exc:
            raise SourceError(
                f"{path}: says {sizes} numbers, {expected:,} bytes, for which memory is too small"
            ) from exc
        data = stream.read(expected + 1)
    if len(data) != expected:
        some = "more" if len(data) > expected else f"{len(data):,}"
        raise SourceError(f"{path}: says {sizes}, {expected:,} bytes, but holds {some}; download it again")
    return np.frombuffer(data, dtype).reshape(sizes), None, 0


def _opened(path: str) -> ByteSource:
    try:
        return open_file(path)
    except StoreError as exc:
        raise SourceError(str(exc)) from exc


def _words(array: NDArray[np.generic]) -> str:
    return f"{array.dtype} {array.shape}"


def _array(name: str, array: NDArray[np.generic]) -> RowArray:
    return RowArray(name, array.shape, array.dtype, array.__getitem__)
