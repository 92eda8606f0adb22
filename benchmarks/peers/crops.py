"""Where RandomResizedCrop and Resize + CenterCrop cut, by torchvision's rules; numbers only, for every decoder."""

from __future__ import annotations

import math
import random

__all__ = ["center_places", "random_box"]


def random_box(width: int, height: int, scale: tuple[float, float] = (0.08, 1.0)) -> tuple[int, int, int, int]:
    """Left, top, width and height of RandomResizedCrop's box."""
    for _ in range(10):
        area = width * height * random.uniform(*scale)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return random.randint(0, width - wide), random.randint(0, height - tall), wide, tall
    short = min(width, height)
    return (width - short) // 2, (height - short) // 2, short, short


def center_places(width: int, height: int) -> tuple[int, int, int, int]:
    """Resize(256), CenterCrop(224): the resized width and height, then left and top of the crop in them."""
    short = min(width, height)
    resized_width, resized_height = int(256 * width / short), int(256 * height / short)
    return resized_width, resized_height, round((resized_width - 224) / 2), round((resized_height - 224) / 2)
