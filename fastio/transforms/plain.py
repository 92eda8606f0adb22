"""The plain path: one picture or mask, transformed step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.codec.mask import moved_numbers, nearest_positions
from fastio.errors import SchemaError
from fastio.lazy import is_tensor, torch
from fastio.transforms.arguments import KERNELS, Fill, check_mask_fill
from fastio.transforms.canvas import AxisName, Boxes, Ints, PixelFunction, Rule
from fastio.transforms.matrices import Warp
from fastio.transforms.program import check_channels, paint

__all__ = [
    "PlainMask",
    "PlainPicture",
    "colour_of",
]


_MODES = {"L": 1, "RGB": 3, "RGBA": 4}


class PlainPicture:
    """
    A canvas of one picture; each step replaces it, ``picture`` is the latest.

    Tensors are resampled by Pillow too, each channel as a grey picture: the pixels equal those of a PIL image, except
    that Pillow weights the colours of "RGBA" by alpha.
    """

    def __init__(self, picture: Image.Image | torch.Tensor) -> None:
        if is_tensor(picture):
            if picture.dtype != torch.uint8 or picture.ndim < 3 or 0 in picture.shape:
                raise ValueError(f"expected a uint8 tensor (..., C, H, W), got {picture.dtype} {tuple(picture.shape)}")
        elif not isinstance(picture, Image.Image) or picture.mode not in _MODES:
            what = f"an image of mode {picture.mode!r}" if isinstance(picture, Image.Image) else type(picture).__name__
            raise ValueError(f"expected a PIL image of mode {', '.join(_MODES)} or a uint8 tensor, got {what}")
        self.doing: object = None
        self._set(picture)

    def _set(self, picture: Image.Image | torch.Tensor) -> None:
        self.picture = picture
        size = picture.shape[:-3:-1] if is_tensor(picture) else picture.size
        self.width, self.height = np.array([size[0]]), np.array([size[1]])

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        x, y, w, h = int(left[0]), int(top[0]), int(width[0]), int(height[0])
        if is_tensor(self.picture):
            self._set(self.picture[..., y : y + h, x : x + w])
        else:
            self._set(self.picture.crop((x, y, x + w, y + h)))

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        size = (int(width[0]), int(height[0]))
        if not is_tensor(self.picture):
            self._set(self.picture.resize(size, KERNELS[kernel]))
            return
        planes = self.picture.reshape(-1, *self.picture.shape[-2:]).numpy()
        resized = [np.array(Image.fromarray(plane).resize(size, KERNELS[kernel])) for plane in planes]
        self._set(torch.from_numpy(np.stack(resized)).reshape(*self.picture.shape[:-2], size[1], size[0]))

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        x, y = int(left[0]), int(top[0])
        w, h = int(self.width[0]), int(self.height[0])
        size = (x + w + int(right[0]), y + h + int(bottom[0]))
        if size == (w, h):
            return
        if is_tensor(self.picture):
            colour = self.picture.new_tensor(colour_of(fill, self.picture.shape[-3])).reshape(-1, 1, 1)
            padded = colour.expand(*self.picture.shape[:-2], size[1], size[0]).clone()
            padded[..., y : y + h, x : x + w] = self.picture
            self._set(padded)
        else:
            channels = colour_of(fill, _MODES[self.picture.mode])
            image = Image.new(self.picture.mode, size, channels if len(channels) > 1 else channels[0])
            image.paste(self.picture, (x, y))
            self._set(image)

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        if not mask[0]:
            return
        if is_tensor(self.picture):
            self._set(self.picture.flip(-1 if axis == "x" else -2))
        else:
            turn = Image.Transpose.FLIP_LEFT_RIGHT if axis == "x" else Image.Transpose.FLIP_TOP_BOTTOM
            self._set(self.picture.transpose(turn))

    def warp(self, warp: Warp) -> None:
        """Read the pixels elsewhere. Raises SchemaError for a picture with alpha."""

        def paint_each(pixels: NDArray[np.uint8], numbers: NDArray[np.float64]) -> None:
            check_channels(pixels.shape[2], self.doing)
            paint(pixels[None], warp.program)

        self.call(paint_each, np.zeros((1, 0)))

    def grey(self, channels: int) -> None:
        if not is_tensor(self.picture):
            grey = self.picture.convert("L")
            self._set(grey if channels == 1 else Image.merge("RGB", [grey] * channels))
            return
        luma = self.picture[..., :1, :, :]
        if self.picture.shape[-3] > 1:
            red, green, blue = (self.picture[..., channel : channel + 1, :, :].int() for channel in range(3))
            luma = ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).to(torch.uint8)
        self._set(luma.expand(*luma.shape[:-3], channels, *luma.shape[-2:]))

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Call the function; its exceptions pass through."""
        own = np.ascontiguousarray(numbers[0])
        if not is_tensor(self.picture):
            pixels = np.array(self.picture)
            function(pixels.reshape(*pixels.shape[:2], -1), own)
            self._set(Image.fromarray(pixels))
            return
        pictures = self.picture.reshape(-1, *self.picture.shape[-3:]).movedim(1, -1).contiguous().clone()
        for each in pictures.numpy():
            function(each, own)
        self._set(pictures.movedim(-1, 1).reshape(self.picture.shape))

    def keep(self, rule: Rule) -> None:
        """Do nothing: a picture has no boxes."""

    def boxes_now(self) -> Boxes | None:
        """Raise SchemaError: a picture alone has no boxes to look at."""
        raise SchemaError(
            f"{self.doing} looks at boxes: call it on whole samples, as FastDataset(path, transform=...) does, or drop "
            "it"
        )

    def drop_outside(self, left: Ints, top: Ints, *, width: Ints, height: Ints, mask: NDArray[np.bool_]) -> None:
        """Do nothing: it has no boxes."""


def colour_of(fill: Fill, channels: int) -> Fill:
    """Return one number per channel. Raises ValueError if their count is wrong."""
    if len(fill) not in (1, channels):
        raise ValueError(f"fill={fill}: expected one number, or {channels} (one per channel)")
    return fill * channels if len(fill) == 1 else fill


# The plain path of masks: one mask transformed step by step, in NumPy, by torch's rule of the nearest pixel.


class PlainMask:
    """
    A canvas of one mask: a PIL image of any mode, a NumPy array ``(H, W[, C])``, or a tensor ``(..., H, W)``.

    As in torchvision, pixels are never interpolated, whatever the kernel; edges have a number of their own, and
    Grayscale and functions leave masks alone.
    """

    def __init__(self, mask: Any) -> None:
        self.doing: object = None
        self._mask = mask
        numbers = np.asarray(mask)
        self._set(np.moveaxis(numbers, (-2, -1), (0, 1)) if is_tensor(mask) else numbers)

    def _set(self, numbers: NDArray[Any]) -> None:
        self._numbers = numbers
        self.height, self.width = np.array([numbers.shape[0]]), np.array([numbers.shape[1]])

    @property
    def mask(self) -> Any:
        """The mask after the steps, of the type and mode that it came with."""
        if is_tensor(self._mask):
            return torch.from_numpy(np.ascontiguousarray(np.moveaxis(self._numbers, (0, 1), (-2, -1))))
        numbers = np.ascontiguousarray(self._numbers)
        if not isinstance(self._mask, Image.Image):
            return numbers
        image = Image.fromarray(numbers)
        palette = self._mask.getpalette()
        if palette is not None:
            image.putpalette(palette)
        return image

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        x, y, w, h = int(left[0]), int(top[0]), int(width[0]), int(height[0])
        self._set(self._numbers[y : y + h, x : x + w])

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        """Choose the nearest pixels."""
        lines, columns = (
            nearest_positions(int(old[0]), int(new[0])) for old, new in ((self.height, height), (self.width, width))
        )
        self._set(self._numbers[lines[:, None], columns])

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        """Add edges of ``mask_fill``. Raises SchemaError if the mask cannot hold that number."""
        sides = [(int(top[0]), int(bottom[0])), (int(left[0]), int(right[0]))]
        if not any(map(any, sides)):
            return
        check_mask_fill(mask_fill, self._numbers.dtype, where=str(self.doing))
        more = [(0, 0)] * (self._numbers.ndim - 2)
        self._set(np.pad(self._numbers, [*sides, *more], constant_values=mask_fill))

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        if mask[0]:
            self._set(self._numbers[:, ::-1] if axis == "x" else self._numbers[::-1])

    def warp(self, warp: Warp) -> None:
        """Read the nearest numbers elsewhere. Raises SchemaError if the mask cannot hold that outside."""
        check_mask_fill(warp.look.mask_fill, self._numbers.dtype, where=str(self.doing))
        self._set(moved_numbers(self._numbers, warp.mask_program[0]))

    def grey(self, channels: int) -> None:
        """Do nothing: numbers of classes have no colour."""

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Do nothing: the function is for pictures."""

    def keep(self, rule: Rule) -> None:
        """Do nothing: a mask has no boxes."""

    def boxes_now(self) -> Boxes | None:
        """Return None: it has no boxes."""
        return None

    def drop_outside(self, left: Ints, top: Ints, *, width: Ints, height: Ints, mask: NDArray[np.bool_]) -> None:
        """Do nothing: it has no boxes."""
