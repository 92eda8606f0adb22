"""The rules for colours, in float64 and plain numpy, one picture (C, H, W) uint8 at a time."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

__all__ = ["PLAIN"]

Pixels = NDArray[np.uint8]


def as_pixels(values: NDArray[np.float64]) -> Pixels:
    return np.clip(values, 0, 255).astype(np.uint8)


def luma(image: Pixels) -> NDArray[np.float64]:
    weights = np.array([0.2989, 0.587, 0.114]) if len(image) == 3 else np.ones(1)
    return np.floor(np.tensordot(weights, image.astype(np.float64), 1) + 1e-9)


def brightness(image: Pixels, amount: float) -> Pixels:
    return as_pixels(image * amount)


def contrast(image: Pixels, amount: float) -> Pixels:
    return as_pixels(image * amount + luma(image).mean() * (1 - amount))


def saturation(image: Pixels, amount: float) -> Pixels:
    return image if len(image) == 1 else as_pixels(image * amount + luma(image) * (1 - amount))


def hue(image: Pixels, amount: float) -> Pixels:
    if len(image) == 1:
        return image
    out = np.empty_like(image)
    for y in range(image.shape[1]):
        for x in range(image.shape[2]):
            turn, share, value = colorsys.rgb_to_hsv(*(image[:, y, x] / 255))
            out[:, y, x] = np.floor(np.array(colorsys.hsv_to_rgb((turn + amount) % 1, share, value)) * 255.999)
    return out


def sharpness(image: Pixels, amount: float) -> Pixels:
    if min(image.shape[1:]) <= 2:
        return image
    values = image.astype(np.float64)
    out = values.copy()
    for y in range(1, image.shape[1] - 1):
        for x in range(1, image.shape[2] - 1):
            around = values[:, y - 1 : y + 2, x - 1 : x + 2].sum((1, 2))
            blurred = np.round((around + 4 * values[:, y, x]) / 13)
            out[:, y, x] = values[:, y, x] * amount + blurred * (1 - amount)
    return as_pixels(out)


def by_pillow(image: Pixels, change: Any) -> Pixels:
    return np.stack([np.array(change(Image.fromarray(plane))) for plane in image])


def posterize(image: Pixels, amount: float) -> Pixels:
    return by_pillow(image, lambda plane: ImageOps.posterize(plane, int(amount)))


def solarize(image: Pixels, amount: float) -> Pixels:
    return np.where(image >= 255 * amount, 255 - image, image).astype(np.uint8)


def autocontrast(image: Pixels, amount: float) -> Pixels:
    out = image.copy()
    for plane, values in zip(out, image.astype(np.float64), strict=True):
        if values.max() > values.min():
            plane[:] = as_pixels((values - values.min()) * 255 / (values.max() - values.min()) + 1e-9)
    return out


def equalize(image: Pixels, amount: float) -> Pixels:
    return by_pillow(image, ImageOps.equalize)


PLAIN = {
    "brightness": brightness,
    "contrast": contrast,
    "saturation": saturation,
    "hue": hue,
    "sharpness": sharpness,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
}
