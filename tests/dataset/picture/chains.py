"""Random chains of Pillow calls, and files of every kind to try them on."""

from __future__ import annotations

import copy
import io
import pickle
import struct
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps

__all__ = ["chain", "files"]

Step = Callable[[Image.Image], Any]


def files(width: int, height: int, seed: int) -> dict[str, bytes]:
    """A picture in every kind of file that a store may hold."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (height // 9 + 1, width // 7 + 1, 4)).repeat(9, 0).repeat(7, 1)
    noise = random.integers(-20, 20, (height, width, 4))
    rgba = Image.fromarray(np.clip(blocks[:height, :width] + noise, 0, 255).astype(np.uint8))
    rgb, grey = rgba.convert("RGB"), rgba.convert("L")
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation
    deep = Image.fromarray(random.integers(0, 1 << 16, (height, width)).astype(np.uint16))
    return {
        "jpeg": _saved(rgb, "JPEG", quality=90, subsampling=2),
        "jpeg 4:4:4": _saved(rgb, "JPEG", quality=75, subsampling=0),
        "jpeg with exif": _saved(rgb, "JPEG", exif=exif, dpi=(72, 72)),
        "grey jpeg": _saved(grey, "JPEG"),
        "progressive jpeg": _saved(rgb, "JPEG", progressive=True),
        "cmyk jpeg": _saved(rgb.convert("CMYK"), "JPEG"),
        "png": _saved(rgb, "PNG"),
        "png with text": _with_text(_saved(rgb, "PNG", dpi=(100, 100))),
        "png with a transparent colour": _saved(rgb, "PNG", transparency=rgb.getpixel((3, 3))),
        "grey png": _saved(grey, "PNG"),
        "grey png with alpha": _saved(rgba.convert("LA"), "PNG"),
        "png with alpha": _saved(rgba, "PNG"),
        "palette": _saved(rgb.quantize(64), "PNG"),
        "palette with a transparent colour": _saved(rgb.quantize(64), "PNG", transparency=5),
        "palette with alpha": _saved(rgb.quantize(64), "PNG", transparency=bytes(range(0, 256, 4))),
        "16 bit": _saved(deep, "PNG"),
        "bits": _saved(grey.convert("1"), "PNG"),
        "webp": _saved(rgb, "WEBP", quality=80),
        "gif": _saved(rgb.quantize(32), "GIF"),
        "bmp": _saved(rgb, "BMP"),
    }


def _saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _with_text(png: bytes) -> bytes:
    """A comment behind the pixels, where Pillow finds it when it decodes."""
    chunk = b"tEXtComment\0behind the pixels"
    end = len(png) - 12
    return png[:end] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[end:]


def chain(random: Random) -> list[Step]:
    """A few steps, each a function of the picture alone: calling it twice does the same twice."""
    makers = random.choices(list(_MAKERS), weights=list(_MAKERS.values()), k=random.randint(0, 5))
    return [maker(random) for maker in makers]


def _box(random: Random, size: tuple[int, int], *, spare: int) -> tuple[int, int, int, int]:
    """A box in a picture of this size, or up to ``spare`` pixels outside."""
    left, right = sorted(random.sample(range(-spare, size[0] + spare + 1), 2))
    top, bottom = sorted(random.sample(range(-spare, size[1] + spare + 1), 2))
    return left, top, right, bottom


def _crop(random: Random) -> Step:
    seed = random.random()

    def step(picture: Image.Image) -> Image.Image:
        own = Random(seed)
        box: Any = _box(own, picture.size, spare=own.choice((0, 0, 0, 5)))
        if own.random() < 0.2:
            box = tuple(side + own.uniform(-0.4, 0.4) for side in box)
        return picture.crop(own.choice((box, box, box, box, box, None, (0, 0, *picture.size))))

    return step


def _resize(random: Random) -> Step:
    size = (random.randint(1, 90), random.randint(1, 90))
    resample = random.choice((*Image.Resampling, None))
    gap = random.choice((None, None, None, 1.0, 1.5, 3.0))
    seed, is_boxed = random.random(), random.random() < 0.2

    def step(picture: Image.Image) -> Image.Image:
        box: Any = None
        if is_boxed:
            own = Random(seed)
            left, top, right, bottom = _box(own, picture.size, spare=0)
            box = (left + own.uniform(0, 0.5), top, right, bottom - own.choice((0, 0.25)))
        return picture.resize(size, resample, box=box, reducing_gap=gap)

    return step


def _transpose(random: Random) -> Step:
    method = random.choice(list(Image.Transpose))
    return lambda picture: picture.transpose(method)


def _flip(random: Random) -> Step:
    return lambda picture: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def _convert(random: Random) -> Step:
    mode = random.choice(("L", "L", "RGB", "RGB", "RGBA", "CMYK", "P", "1", "LA", "HSV", None))
    if random.random() < 0.05:
        return lambda picture: picture.convert("RGB").convert("RGB", (0.5, 0.2, 0, 0, 0, 1, 0, 9, 0.1, 0, 1, 0))
    return lambda picture: picture.convert(mode)


def _thumbnail(random: Random) -> Step:
    size = (random.randint(1, 90), random.uniform(1, 90))
    resample = random.choice((Image.Resampling.BICUBIC, Image.Resampling.BOX))
    gap = random.choice((2.0, 2.0, None, 1.1))

    def step(picture: Image.Image) -> Image.Image:
        picture.thumbnail(size, resample, reducing_gap=gap)
        return picture

    return step


def _in_place(random: Random) -> Step:
    which = random.randrange(6)

    def step(picture: Image.Image) -> Image.Image:
        if which == 0:
            picture.putpixel((0, 0), 1)
        elif which == 1:
            picture.paste(picture.copy().resize((3, 2)), (1, 1))
        elif which == 2:
            picture.info["own"] = ["list"]
        elif which == 3:
            picture.draft("L", (8, 8))
        elif which == 4 and picture.mode == "L":
            picture.putpalette(bytes(range(256)) * 3)
        elif which == 5 and picture.mode == "RGB":
            ImageDraw.Draw(picture).line((0, 0, *picture.size), fill=(1, 2, 3))
        return picture

    return step


def _look(random: Random) -> Step:
    """Something that asks for pixels and leaves the picture as it is."""
    which = random.randrange(6)

    def step(picture: Image.Image) -> Image.Image:
        if which == 0:
            np.asarray(picture)
        elif which == 1:
            picture.load()
        elif which == 2:
            picture.getpixel((0, 0))
        elif which == 3:
            picture.tobytes()
        elif which == 4:
            picture.histogram()
        else:
            picture.getexif()
        return picture

    return step


def _copied(random: Random) -> Step:
    return random.choice((copy.copy, copy.deepcopy, Image.Image.copy, lambda each: pickle.loads(pickle.dumps(each))))


def _other(random: Random) -> Step:
    """What is Pillow's alone."""
    angle = random.choice((0, 90, 180, 270, 33.5))
    steps: list[Step] = [
        lambda picture: picture.rotate(angle, expand=True),
        lambda picture: picture.rotate(angle, Image.Resampling.NEAREST, fillcolor=None),
        lambda picture: picture.reduce((2, 3)),
        lambda picture: picture.convert("RGB").filter(ImageFilter.GaussianBlur(1)),
        lambda picture: picture.convert("L").point(lambda value: 255 - value),
        lambda picture: Image.merge("RGB", picture.convert("RGB").split()[::-1]),
        lambda picture: picture.getchannel(0),
        lambda picture: ImageOps.exif_transpose(picture),
        lambda picture: ImageOps.expand(picture, 3),
        lambda picture: ImageOps.fit(picture.convert("RGB"), (20, 30)),
        lambda picture: ImageOps.pad(picture.convert("RGB"), (31, 20)),
        lambda picture: ImageOps.contain(picture, (25, 25)),
        lambda picture: ImageOps.mirror(ImageOps.flip(picture)),
        lambda picture: ImageOps.autocontrast(picture.convert("RGB")),
        lambda picture: ImageOps.posterize(picture.convert("L"), 3),
        lambda picture: ImageEnhance.Color(picture.convert("RGB")).enhance(0.3),
        lambda picture: ImageChops.invert(picture.convert("RGB")),
        lambda picture: Image.blend(picture.convert("RGB"), picture.convert("RGB").transpose(1), 0.4),
        lambda picture: picture.transform((30, 20), Image.Transform.AFFINE, (1, 0.1, 2, 0, 1.2, 3)),
    ]
    return random.choice(steps)


_MAKERS: dict[Callable[[Random], Step], int] = {
    _crop: 6,
    _resize: 6,
    _flip: 3,
    _transpose: 3,
    _convert: 3,
    _thumbnail: 1,
    _in_place: 1,
    _look: 1,
    _copied: 1,
    _other: 2,
}
