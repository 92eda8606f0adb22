"""Decides whether encoded pictures with different bytes show the same pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.probe import probe
from fastio.types.spans import Spans

__all__ = ["Pair", "same_pixels"]

Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # two encoded pictures

_PIXEL_BYTES = 64 << 20  # decoded at a time, one larger pair aside


def same_pixels(pairs: Sequence[Pair], pool: _native.ThreadPool) -> list[bool]:
    """
    Return for each pair whether both decode natively to the same size and pixels; False for what only Pillow decodes.
    """
    spans = [_both(pair) for pair in pairs]
    shapes = [_common_shape(both) for both in spans]
    same: list[bool] = []
    for part in _parts([2 * height * width * channels for height, width, channels in shapes]):
        begun = []
        for i in part:
            out, status = np.empty((2, *shapes[i]), np.uint8), np.zeros(2, np.int32)
            each = spans[i] if out.size else spans[i].part(0, 0)
            job = _native.decode_images(each, out[: len(each)], status[: len(each)], pool, verify=False)
            begun.append((job, out, status))
        for job, out, status in begun:
            job.wait()
            same.append(bool(out.size and not status.any() and np.array_equal(out[0], out[1])))
    return same


def _both(pair: Pair) -> Spans:
    sizes = np.array([len(each) for each in pair], np.int64)
    return Spans(_native.Buffers(pair), np.arange(2, dtype=np.int32), np.zeros(2, np.int64), sizes)


def _common_shape(both: Spans) -> tuple[int, int, int]:
    """Height, width and channels that both have; zeros where they differ."""
    headers = probe(both)
    first, second = headers
    if len(headers.bad) or first[1:4] != second[1:4] or first.channels == 2:
        return 0, 0, 0
    return first.height, first.width, first.channels


def _parts(sizes: Sequence[int]) -> Iterator[range]:
    """Neighbours that are decoded together."""
    start, total = 0, 0
    for i, size in enumerate(sizes):
        if i > start and total + size > _PIXEL_BYTES:
            yield range(start, i)
            start, total = i, 0
        total += size
    yield range(start, len(sizes))
