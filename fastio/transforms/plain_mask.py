"""The plain path of masks: one mask transformed step by step, in NumPy, by torch's rule of the nearest pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastio.codec.nearest import nearest_positions
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import Ints, PixelFunction
from fastio.transforms.rules import Rule

__all__ = ["PlainMask"]


class PlainMask:
    """
    A canvas of one mask: a PIL image of any mode, a NumPy array ``(H, W[, C])``, or a tensor ``(..., H, W)``.

    As in torchvision, pixels are never interpolated, whatever the kernel; edges are 0, whatever the colour of those of
    pictures; and Grayscale and functions leave masks alone.
    """

    def __init__(self, mask: Any) -> None:
        self.doing: object = None
        self._mask = mask
        numbers = np.asarray(mask)
        self._set(np.moveaxis(numbers, (-2, -1), (0, 1)) if isinstance(mask, torch.Tensor) else numbers)

    def _set(self, numbers: NDArray[Any]) -> None:
        self._numbers = numbers
        self.height, self.width = np.array([numbers.shape[0]]), np.array([numbers.shape[1]])

    @property
    def mask(self) -> Any:
        """The mask after the steps, of the type and mode that it came with."""
        if isinstance(self._mask, torch.Tensor):
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

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill) -> None:
        """Add edges of 0."""
        more = [(0, 0)] * (self._numbers.ndim - 2)
        self._set(np.pad(self._numbers, [(int(top[0]), int(bottom[0])), (int(left[0]), int(right[0])), *more]))

    def flip(self, mask: NDArray[np.bool_]) -> None:
        if mask[0]:
            self._set(self._numbers[:, ::-1])

    def grey(self, channels: int) -> None:
        """Do nothing: numbers of classes have no colour."""

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Do nothing: the function is for pictures."""

    def keep(self, rule: Rule) -> None:
        """Do nothing: a mask has no boxes."""
