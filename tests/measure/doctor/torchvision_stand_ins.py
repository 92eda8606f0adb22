"""Transforms with the names, modules and attributes of torchvision's, which is not installed for tests."""

from __future__ import annotations

import random
from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "InterpolationMode",
    "Normalize",
    "RandAugment",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToTensor",
    "V2RandomResizedCrop",
    "V2ToDtype",
    "V2ToImage",
]


class InterpolationMode(Enum):
    """As in torchvision: the names of filters."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Compose:
    """One after the other."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        """All of them."""
        for transform in self.transforms:
            img = transform(img)
        return img


class RandomResizedCrop(torch.nn.Module):
    """A random part, resized."""

    def __init__(self, size: int, scale: Any = (0.08, 1.0), ratio: Any = (3 / 4, 4 / 3)) -> None:
        super().__init__()
        self.size = (size, size)
        self.interpolation = InterpolationMode.BILINEAR
        self.antialias = True
        self.scale = scale
        self.ratio = ratio

    def forward(self, img: Image.Image) -> Image.Image:
        """A square of half the shorter side."""
        side = min(img.size) // 2
        left, top = (random.randint(0, full - side) for full in img.size)
        return img.resize(self.size[::-1], Image.Resampling.BILINEAR, (left, top, left + side, top + side))


class Resize(torch.nn.Module):
    """To a short side, or to height and width."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = size
        self.max_size = None
        self.interpolation = InterpolationMode.BILINEAR
        self.antialias = True

    def forward(self, img: Image.Image) -> Image.Image:
        """Proportions kept for one number."""
        if not isinstance(self.size, int):
            return img.resize(self.size[::-1], Image.Resampling.BILINEAR)
        short = min(img.size)
        width, height = (int(self.size * full / short) for full in img.size)
        return img.resize((width, height), Image.Resampling.BILINEAR)


class CenterCrop(torch.nn.Module):
    """The middle."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = (size, size)

    def forward(self, img: Image.Image) -> Image.Image:
        """Of a picture that is large enough."""
        height, width = self.size
        left, top = (img.width - width) // 2, (img.height - height) // 2
        return img.crop((left, top, left + width, top + height))


class RandomCrop(torch.nn.Module):
    """A part with edges added."""

    def __init__(self, size: int, padding: int) -> None:
        super().__init__()
        self.size = (size, size)
        self.padding = padding
        self.pad_if_needed = False
        self.fill = 0
        self.padding_mode = "constant"

    def forward(self, img: Image.Image) -> Image.Image:
        """Without the edges, which nobody looks at here."""
        return img.crop((0, 0, self.size[1], self.size[0]))


class RandomHorizontalFlip(torch.nn.Module):
    """Mirrored or not."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Image.Image) -> Image.Image:
        """By Python's generator."""
        return img.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < self.p else img


class ColorJitter(torch.nn.Module):
    """Colours, left as they are here."""

    def __init__(self, brightness: Any) -> None:
        super().__init__()
        self.brightness = brightness
        self.contrast = self.saturation = self.hue = None

    def forward(self, img: Image.Image) -> Image.Image:
        """The picture."""
        return img


class RandAugment(torch.nn.Module):
    """Some colours, left as they are here."""

    def __init__(self) -> None:
        super().__init__()
        self.num_ops, self.magnitude, self.num_magnitude_bins = 2, 9, 31
        self.interpolation = InterpolationMode.NEAREST
        self.fill = None

    def forward(self, img: Image.Image) -> Image.Image:
        """The picture."""
        return img


class ToTensor:
    """From 0 to 1."""

    def __call__(self, pic: Image.Image) -> torch.Tensor:
        """(C, H, W) in float32."""
        return torch.from_numpy(np.array(pic)).permute(2, 0, 1).float() / 255


class Normalize(torch.nn.Module):
    """By mean and standard deviation."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.inplace = False

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """Channel by channel."""
        return (tensor - torch.tensor(self.mean)[:, None, None]) / torch.tensor(self.std)[:, None, None]


class V2RandomResizedCrop(RandomResizedCrop):
    """Of torchvision.transforms.v2."""


class V2ToImage(torch.nn.Module):
    """A tensor of bytes."""

    def forward(self, img: Image.Image) -> torch.Tensor:
        """(C, H, W) in uint8."""
        return torch.from_numpy(np.array(img)).permute(2, 0, 1)


class V2ToDtype(torch.nn.Module):
    """Another type."""

    def __init__(self, dtype: torch.dtype, *, scale: bool) -> None:
        super().__init__()
        self.dtype = dtype
        self.scale = scale

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """From bytes."""
        return image.to(self.dtype) / (255 if self.scale else 1)


for _kind in (Compose, CenterCrop, ColorJitter, Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize):
    _kind.__module__ = "torchvision.transforms.transforms"
RandAugment.__module__ = "torchvision.transforms.autoaugment"
ToTensor.__module__ = "torchvision.transforms.transforms"
for _kind, _module in ((V2RandomResizedCrop, "_geometry"), (V2ToImage, "_type_conversion"), (V2ToDtype, "_misc")):
    _kind.__module__ = f"torchvision.transforms.v2.{_module}"
    _kind.__name__ = _kind.__qualname__ = _kind.__name__.removeprefix("V2")
