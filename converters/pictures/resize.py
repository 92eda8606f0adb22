"""Resizes to one exact size with Pillow the pictures that the native core does not rewrite."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.machine import available_cpus
from fastio.types.picture_kinds import PNG
from fastio.types.spans import Spans

__all__ = [
    "DEEP_MODES",
    "ResizedPicture",
    "Subsampling",
    "has_16_bits",
    "plan_to",
    "replaced",
    "resize_all",
]


DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L")  # more than 8 bits, as Pillow names them

_PNG_DEPTH = 24  # the byte of a PNG that says how many bits a sample has
_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_PLAIN_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB", "LAB": "RGB", "RGBX": "RGB"}
_KEPT = ("exif", "icc_profile")

Subsampling = Literal["4:4:4", "4:2:2", "4:2:0"]  # in the order of their numbers in the native core


@dataclass(frozen=True, slots=True)
class ResizedPicture:
    """An encoded picture and its channels; or, without bytes, the reason, in words that follow a name."""

    data: bytes
    channels: int = 0
    problem: str = ""


def has_16_bits(value: NDArray[np.uint8]) -> bool:
    """Return whether a file is a PNG with 16 bits per channel."""
    return value[_PNG_DEPTH : _PNG_DEPTH + 1].tobytes() == b"\x10" and _native.image_kind(value) == PNG


def plan_to(size: tuple[int, int], shapes: NDArray[np.int32]) -> NDArray[np.int32]:
    """
    Return plans (see ``fastio.transforms.plan``) that make whole pictures of these shapes ``size`` (height, width).
    """
    height, width = size
    plan = np.zeros((len(shapes), 13), np.int32)
    plan[:, 2], plan[:, 3] = shapes[:, 1], shapes[:, 0]
    plan[:, 4:6] = plan[:, 8:10] = width, height
    return plan


def resize_all(
    values: Sequence[NDArray[np.uint8]], size: tuple[int, int], *, quality: int, subsampling: Subsampling
) -> list[ResizedPicture]:
    """Resize encoded pictures in threads, see ``resize``."""
    if not values:
        return []
    with ThreadPoolExecutor(min(available_cpus(), len(values)), thread_name_prefix="fastio") as threads:
        return list(threads.map(partial(resize, size=size, quality=quality, subsampling=subsampling), values))


def resize(
    value: NDArray[np.uint8], *, size: tuple[int, int], quality: int, subsampling: Subsampling
) -> ResizedPicture:
    """
    Resize one picture to (height, width), bilinear with antialiasing: a JPEG as a JPEG, everything else as a PNG.

    Palettes become colours, CMYK becomes RGB; transparency, EXIF and (without CMYK) the colour profile stay. Pictures
    with more than 8 bits or several frames are problems: they would lose those.
    """
    from PIL import Image

    from fastio.codec.pillow import PLUGIN_ERRORS, teach_pillow

    deep = ResizedPicture(b"", problem="has more than 8 bits per channel, which a resized picture would lose")
    if has_16_bits(value):
        return deep
    file = io.BytesIO()
    teach_pillow(value)
    try:
        with Image.open(io.BytesIO(value.data)) as picture:
            is_jpeg = picture.format in ("JPEG", "MPO")
            if picture.mode in DEEP_MODES:
                return deep
            if not is_jpeg and getattr(picture, "n_frames", 1) > 1:
                return ResizedPicture(b"", problem="has several frames, of which a resized picture would keep only one")
            known = dict(picture.info)
            has_alpha = picture.mode == "P" and "transparency" in known
            mode = "RGBA" if has_alpha else _PLAIN_MODES.get(picture.mode, picture.mode)
            info = {name: known[name] for name in _KEPT if name in known and (name, picture.mode) != _NO_PROFILE}
            resized = picture.convert(mode).resize(size[::-1], Image.Resampling.BILINEAR)
        _save(resized, file, is_jpeg=is_jpeg, info=info, style={"quality": quality, "subsampling": subsampling})
    except PLUGIN_ERRORS as exc:
        words = " ".join(str(exc).split()) or type(exc).__name__
        return ResizedPicture(b"", problem=f"cannot be resized by Pillow: {words}")
    return ResizedPicture(file.getvalue(), _CHANNELS[resized.mode])


_NO_PROFILE = ("icc_profile", "CMYK")  # a profile of inks says nothing of RGB


def _save(picture: Any, file: io.BytesIO, *, is_jpeg: bool, info: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    if is_jpeg:
        picture.save(file, "JPEG", **info, **style)
    else:
        picture.save(file, "PNG", **info)


def replaced(spans: Spans, pictures: Mapping[int, ResizedPicture]) -> Spans:
    """Return spans of one buffer with other values at some positions."""
    data = np.frombuffer(b"".join(each.data for each in pictures.values()), np.uint8)
    sizes = np.array([len(each.data) for each in pictures.values()], np.int64)
    rows = np.fromiter(pictures, np.int64, len(pictures))
    shard, starts, all_sizes = spans.shard.copy(), spans.starts.copy(), spans.sizes.copy()
    shard[rows], starts[rows], all_sizes[rows] = 1, np.cumsum(sizes) - sizes, sizes
    before = spans.buffers.view(0, 0, int((spans.starts + spans.sizes).max()))
    buffers = _native.Buffers([before, data])
    return Spans(buffers, shard, starts, all_sizes, None, spans.intervals)
