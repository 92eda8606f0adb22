"""What a transform is: some random draws, and a few steps on a canvas, which is a batch's plan or one picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastio.transforms.arguments import Fill

__all__ = ["Canvas", "Ints", "PixelFunction", "Transform"]

Ints = NDArray[np.int64]
PixelFunction = Callable[[NDArray[np.uint8], NDArray[np.float64]], None]  # changes pixels (H, W, C) by numbers (k,)
Picture = TypeVar("Picture", Image.Image, torch.Tensor)


class Canvas(Protocol):
    """
    What transforms act on: pictures of known sizes, in steps that are the same for a plan and for pixels.

    All sizes and positions are int64 arrays, ``(n,)`` or ``(1,)`` where they are the same for all
    pictures. Positions are those of the picture as the steps before have left it.
    """

    height: Ints
    width: Ints
    doing: Transform | None  # whose steps these are, for messages

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        """Keep a part, which lies inside."""
        ...

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        """Resample, antialiased, with one of ``arguments.KERNELS``."""
        ...

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill) -> None:
        """Add edges of one colour; none where all are 0."""
        ...

    def flip(self, mask: NDArray[np.bool_]) -> None:
        """Exchange left and right where ``mask`` is set."""
        ...

    def grey(self, channels: int) -> None:
        """Luma as Pillow's "L", in 1 channel or in 3 equal ones."""
        ...

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Let a function that numba has compiled change the pixels, by ``numbers`` ``(n, k)``."""
        ...


@runtime_checkable
class Transform(Protocol):
    """
    A step from picture to picture, as a value: equal arguments make equal transforms.

    ``draws`` uniform numbers in [0, 1) decide what is random about it. Called on a PIL image ("L", "RGB" or "RGBA") or
    on a uint8 tensor ``(..., C, H, W)`` it draws them from torch's generator, as torchvision does; FastLoader draws
    them by seed, epoch and sample index.
    """

    @property
    def draws(self) -> int:
        """Random numbers that one picture takes."""
        ...

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Do the steps, by ``numbers`` ``(n, draws)``."""
        ...

    def __call__(self, picture: Picture) -> Picture:
        return self.apply(picture, torch.rand(self.draws, dtype=torch.float64, device="cpu").numpy())

    def apply(self, picture: Picture, numbers: NDArray[np.float64]) -> Picture:
        """As a call, by given numbers ``(draws,)`` in the place of random ones."""
        from fastio.transforms.plain import PlainPicture

        canvas = PlainPicture(picture)
        canvas.doing = self
        self.run(canvas, numbers.reshape(1, self.draws))
        result: Any = canvas.picture
        return result  # type: ignore[no-any-return] # a PIL image stays one, and so does a tensor
