"""Colours, blur and rectangles painted over: torchvision's transforms as programs that native threads run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.transforms.arguments import check_probability
from fastio.transforms.batch.batch_transform import Parameters, Pictures
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.canvas import RefusedPicturesError
from fastio.transforms.program import COLUMNS, Program, Step, program_of
from fastio.types.options import explains_fields

__all__ = [
    "ColorJitter",
    "GaussianBlur",
    "GaussianNoise",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomSolarize",
]


_NAMES = ("brightness", "contrast", "saturation", "hue")


@explains_fields
@dataclass(frozen=True)
class ColorJitter(PixelTransform):
    """
    Change brightness, contrast, saturation and hue of each picture by random amounts, in random order.

    A number v means a factor from ``max(0, 1 - v)`` to ``1 + v``; for hue it means a turn from ``-v`` to ``v`` (at
    most 0.5). A pair is the range itself; 0 leaves that change out. Draws eight numbers: one for each change, whose
    ascending order is that of the changes, then one for each amount.
    """

    brightness: float | Sequence[float] = 0
    contrast: float | Sequence[float] = 0
    saturation: float | Sequence[float] = 0
    hue: float | Sequence[float] = 0

    def __post_init__(self) -> None:
        for name in _NAMES:
            least, most = (-0.5, 0.5) if name == "hue" else (0.0, float("inf"))
            value = getattr(self, name)
            middle = 0.0 if name == "hue" else 1.0
            limits = (max(middle - value, least), middle + value) if isinstance(value, (int, float)) else tuple(value)
            is_negative = isinstance(value, (int, float)) and value < 0
            if is_negative or len(limits) != 2 or not least <= limits[0] <= limits[1] <= most:
                raise ValueError(
                    f"{name}={value!r}: expected a number of at least 0, or two between {least} and {most}"
                )
            object.__setattr__(self, name, (float(limits[0]), float(limits[1])))

    @property
    def draws(self) -> int:
        """One for the order, one for each amount."""
        return 2 * len(_NAMES)

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        order = np.argsort(numbers[:, : len(_NAMES)], axis=1, kind="stable")
        program = np.zeros((len(numbers), len(_NAMES), COLUMNS))
        for place, name in enumerate(_NAMES):
            low, high = getattr(self, name)
            if (low, high) == ((0.0, 0.0) if name == "hue" else (1.0, 1.0)):
                continue
            sample, step = np.nonzero(order == place)
            program[sample, step, 0] = Step[name.upper()]
            program[sample, step, 1] = low + (high - low) * numbers[sample, len(_NAMES) + place]
        return program


@explains_fields
@dataclass(frozen=True)
class RandomPhotometricDistort(PixelTransform):
    """
    Change brightness, contrast, saturation and hue, and exchange channels, each with probability ``p``.

    Each pair is the range of an amount, as in ColorJitter. Contrast changes before saturation and hue or behind them,
    equally likely. As SSD was trained (Liu et al. 2015, arXiv:1512.02325). Draws thirteen numbers: whether and by how
    much for each of the four, whether contrast comes first, whether to exchange channels, and three whose ascending
    order is that of the channels.
    """

    brightness: Sequence[float] = (0.875, 1.125)
    contrast: Sequence[float] = (0.5, 1.5)
    saturation: Sequence[float] = (0.5, 1.5)
    hue: Sequence[float] = (-0.05, 0.05)
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)
        checked = ColorJitter(*(getattr(self, name) for name in _NAMES))
        for name in _NAMES:
            object.__setattr__(self, name, getattr(checked, name))

    @property
    def draws(self) -> int:
        """Two for each change, one for the place of contrast, one and three for channels."""
        return 13

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        is_first = numbers[:, 8] < 0.5
        program = np.zeros((len(numbers), 6, COLUMNS))
        for place, name in enumerate(("brightness", "contrast", "saturation", "hue", "contrast")):
            own = _NAMES.index(name)
            low, high = getattr(self, name)
            program[:, place, 0] = Step[name.upper()]
            program[:, place, 1] = low + (high - low) * numbers[:, 4 + own]
            program[numbers[:, own] >= self.p, place] = 0
        program[~is_first, 1] = 0
        program[is_first, 4] = 0
        program[:, 5] = _permuted(numbers[:, 10:13])
        program[numbers[:, 9] >= self.p, 5] = 0
        return program


@explains_fields
@dataclass(frozen=True)
class RandomChannelPermutation(PixelTransform):
    """Exchange the three channels at random. Draws three numbers, whose ascending order is that of the channels."""

    @property
    def draws(self) -> int:
        """One for each channel."""
        return 3

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        return _permuted(numbers)[:, None]


def _permuted(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one step of programs, ``(n, COLUMNS)``: channels in the order of three numbers."""
    program: Program = program_of(len(numbers), (Step.PERMUTE, np.argsort(numbers, axis=1, kind="stable")))
    return program[:, 0]


@explains_fields
@dataclass(frozen=True)
class GaussianNoise(PixelTransform):
    """
    Add normal noise of ``mean`` and standard deviation ``sigma`` to each value, on a scale where white is 1.

    Of bytes, noise is cut to whole levels (towards 0, as torchvision does) and results stay within 0 and 255; so
    ``clip=False``, by which they would overflow, raises ValueError. A sample's noise depends on its numbers, its size
    and channels alone: it is the same on any number of threads and after a resume, and on a device to a level. Its
    magnitudes are 32,768 quantiles of the normal distribution, each equally likely, up to 4.3 standard deviations.
    Draws two numbers: the seed.
    """

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True

    def __post_init__(self) -> None:
        if not self.clip:
            raise ValueError("clip=False: expected True: bytes would overflow from white to black")
        for name, least in (("mean", -math.inf), ("sigma", 0.0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not least <= value < math.inf or value == -math.inf:
                words = "a finite number" + (" of at least 0" if name == "sigma" else "")
                raise ValueError(f"{name}={value!r}: expected {words}")

    @property
    def draws(self) -> int:
        """Two numbers: the seed."""
        return 2

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        parts = (numbers[:, :, None] * [1 << 16, 1 << 32] % (1 << 16)).astype(np.int64).reshape(len(numbers), 4)
        looks = np.broadcast_to([[255.0 * self.mean, 255.0 * self.sigma]], (len(numbers), 2))
        return program_of(len(numbers), (Step.NOISE, np.column_stack((looks, parts))))


class _Sometimes(PixelTransform):
    """One step with probability ``p``."""

    p: float

    def __post_init__(self) -> None:
        check_probability(self.p)

    @property
    def draws(self) -> int:
        """One number: whether to change the picture."""
        return 1

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        program = program_of(len(numbers), self._step())
        program[numbers[:, 0] >= self.p] = 0
        return program

    def _step(self) -> tuple[Step, float]:
        """Return the step and its amount."""
        raise NotImplementedError


@explains_fields
@dataclass(frozen=True)
class RandomGrayscale(_Sometimes):
    """
    Replace all channels by luma (0.2989 red + 0.587 green + 0.114 blue, truncated) with probability ``p``.

    Draws one number: whether.
    """

    p: float = 0.1

    def _step(self) -> tuple[Step, float]:
        return Step.GREY, 0


@explains_fields
@dataclass(frozen=True)
class RandomInvert(_Sometimes):
    """Replace each value by 255 minus it with probability ``p``. Draws one number: whether."""

    p: float = 0.5

    def _step(self) -> tuple[Step, float]:
        return Step.INVERT, 0


@explains_fields
@dataclass(frozen=True)
class RandomSolarize(_Sometimes):
    """Invert values of at least ``threshold``, of 255, with probability ``p``. Draws one number: whether."""

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.threshold, (int, float)) or not 0 <= self.threshold <= 255:
            raise ValueError(f"threshold={self.threshold!r}: expected a number from 0 to 255")

    def _step(self) -> tuple[Step, float]:
        return Step.SOLARIZE, self.threshold


@explains_fields
@dataclass(frozen=True)
class RandomPosterize(_Sometimes):
    """Keep only the highest ``bits`` of each value with probability ``p``. Draws one number: whether."""

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.bits, int) or not 0 <= self.bits <= 8:
            raise ValueError(f"bits={self.bits!r}: expected a whole number from 0 to 8")

    def _step(self) -> tuple[Step, float]:
        return Step.POSTERIZE, self.bits


@explains_fields
@dataclass(frozen=True)
class RandomAutocontrast(_Sometimes):
    """Stretch each channel from black to white with probability ``p``. Draws one number: whether."""

    p: float = 0.5

    def _step(self) -> tuple[Step, float]:
        return Step.AUTOCONTRAST, 0


@explains_fields
@dataclass(frozen=True)
class RandomEqualize(_Sometimes):
    """Flatten the histogram of each channel, as Pillow does, with probability ``p``. Draws one number: whether."""

    p: float = 0.5

    def _step(self) -> tuple[Step, float]:
        return Step.EQUALIZE, 0


@explains_fields
@dataclass(frozen=True)
class RandomAdjustSharpness(_Sometimes):
    """
    Sharpen by ``sharpness_factor`` with probability ``p``: 0 is a blur of 3 x 3 pixels, 1 leaves the picture alone.

    Draws one number: whether.
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sharpness_factor, (int, float)) or not 0 <= self.sharpness_factor < math.inf:
            raise ValueError(f"sharpness_factor={self.sharpness_factor!r}: expected a number of at least 0")

    def _step(self) -> tuple[Step, float]:
        return Step.SHARPNESS, self.sharpness_factor


@explains_fields
@dataclass(frozen=True)
class GaussianBlur(PixelTransform):
    """
    Blur by a Gaussian of ``kernel_size`` pixels (odd; one number, or width and height).

    ``sigma`` is the range of its standard deviation, in pixels, or one number. Beyond its edges a picture goes on
    mirrored, so a side must be longer than half the kernel: a smaller picture is refused, a bad sample of a loader
    whose native threads blur, and SchemaError elsewhere. Draws one number: sigma. Equals torchvision's to a level of
    255, which sums up in another order.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        sizes = (self.kernel_size,) * 2 if isinstance(self.kernel_size, int) else tuple(self.kernel_size)
        sizes = sizes * 2 if len(sizes) == 1 else sizes
        if len(sizes) != 2 or not all(isinstance(side, int) and side > 0 and side % 2 for side in sizes):
            raise ValueError(f"kernel_size={self.kernel_size!r}: expected one or two odd numbers above 0")
        limits = (self.sigma,) * 2 if isinstance(self.sigma, (int, float)) else tuple(self.sigma)
        limits = limits * 2 if len(limits) == 1 else limits
        if len(limits) != 2 or not 0 < limits[0] <= limits[1] < math.inf:
            raise ValueError(f"sigma={self.sigma!r}: expected a number above 0, or two, the smaller one first")
        object.__setattr__(self, "kernel_size", sizes)
        object.__setattr__(self, "sigma", (float(limits[0]), float(limits[1])))

    @property
    def draws(self) -> int:
        """One number: sigma."""
        return 1

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        assert isinstance(self.kernel_size, tuple)
        assert isinstance(self.sigma, tuple)
        (across, down), (height, width) = self.kernel_size, size
        if across // 2 >= width or down // 2 >= height:
            reason = f"{self}: the kernel is too large for"
            raise RefusedPicturesError(
                f"{reason} pictures of {height}x{width} (height x width)",
                reason=f"{reason} the picture",
                refused=np.ones(len(numbers), np.bool_),
            )
        low, high = self.sigma
        sigma = low + (high - low) * numbers[:, 0]
        kernels = np.broadcast_to([[across, down]], (len(numbers), 2))
        return program_of(len(numbers), (Step.BLUR, np.column_stack((kernels, sigma, sigma))))


# RandomErasing: paints over a rectangle of each picture.

_TRIES = 10
_MOST_CHANNELS = 4


@explains_fields
@dataclass(frozen=True)
class RandomErasing(PixelTransform):
    """
    Paint a rectangle of random area, proportions and position with ``value``, with probability ``p``.

    ``scale`` is the range of the area as a fraction of the picture's, ``ratio`` the range of height by width, drawn
    uniformly in its logarithm. A rectangle that does not fit is drawn again, ten times in all; then nothing is
    erased. ``value`` is one number or one per channel, on the scale that pixels have at this step of the recipe.
    Draws: whether to erase, top, left, then area and proportions of each try.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"p={self.p!r}: expected a probability from 0 to 1")
        for name, limits, most in (("scale", self.scale, 1.0), ("ratio", self.ratio, math.inf)):
            least = 0.0 if name == "scale" else 1e-6
            if len(limits) != 2 or not least <= limits[0] <= limits[1] <= most:
                raise ValueError(
                    f"{name}={limits!r}: expected two numbers between {least} and {most}, the smaller one first"
                )
            object.__setattr__(self, name, (float(limits[0]), float(limits[1])))
        if isinstance(self.value, str):
            raise ValueError(f"value={self.value!r}: expected a number, or one per channel; noise is not supported")
        values = (self.value,) if isinstance(self.value, (int, float)) else tuple(self.value)
        object.__setattr__(self, "value", values)

    @property
    def takes_alpha(self) -> bool:
        """Whether pictures may have four channels."""
        return True

    @property
    def draws(self) -> int:
        """Whether to erase, two for the position, and two for each try."""
        return 3 + 2 * _TRIES

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        top, left, bottom, right = self._boxes(numbers, size)
        assert isinstance(self.value, tuple)
        values = self.value * _MOST_CHANNELS if len(self.value) == 1 else self.value
        colours = np.broadcast_to([values], (len(numbers), len(values)))
        program = program_of(
            len(numbers), (Step.ERASE, np.column_stack((top, left, bottom, right, colours)).astype(np.float64))
        )
        program[bottom == top] = 0
        return program

    def _boxes(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.int64]:
        """Return top, left, bottom and right, (4, n); bottom is top if nothing is erased."""
        tall, wide = size
        height, width = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
        still = np.flatnonzero(numbers[:, 0] < self.p)
        low, high = self.scale
        log_low, log_high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for attempt in range(_TRIES):
            area = tall * wide * (low + (high - low) * numbers[still, 3 + 2 * attempt])
            ratio = np.exp(log_low + (log_high - log_low) * numbers[still, 4 + 2 * attempt])
            rows, columns = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
            fits = (rows < tall) & (columns < wide)
            height[still[fits]], width[still[fits]] = rows[fits], columns[fits]
            still = still[~fits]
        top = (numbers[:, 1] * (tall - height + 1)).astype(np.int64)
        left = (numbers[:, 2] * (wide - width + 1)).astype(np.int64)
        return np.stack([top, left, top + height, left + width])

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        return {**super().parameters(numbers, size), "boxes": self._boxes(numbers, size)}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        assert isinstance(self.value, tuple)
        if len(self.value) not in (1, images.shape[1]):
            raise SchemaError(f"{self}: needs one value, or {images.shape[1]} (one per channel)")
        if images.device.type != "cpu" and images.shape[1] in (1, 3):
            return super().run(pictures, parameters)
        erased = images.clone()
        colour = torch.tensor(self.value, device=images.device).to(images.dtype).reshape(-1, 1, 1)
        for image, (top, left, bottom, right) in zip(erased, parameters["boxes"].T.tolist(), strict=True):
            image[:, top:bottom, left:right] = colour
        return Pictures(erased, pictures.labels)
