"""What a transform is: some random numbers, and a few steps on a canvas, which is a batch's plan or one picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.lazy import torch
from fastio.transforms.canvas import Canvas
from fastio.transforms.joint import JointTransform, drawn, leaders_of_lists
from fastio.transforms.plain import PlainPicture
from fastio.types.schema import Field

__all__ = [
    "BaseTransform",
    "KeepsSize",
    "LoaderTransform",
    "Transform",
]


# BaseTransform: what transforms of single samples and of whole batches have in common.


@runtime_checkable
class BaseTransform(Protocol):
    """
    A ``Transform`` or a ``BatchTransform``: the type of what a list of both holds::

        steps: list[BaseTransform] = [RandomCrop(32), Normalize(mean, std)]
    """

    @property
    def draws(self) -> int:
        """How many random numbers one sample takes."""
        ...


class LoaderTransform(BaseTransform):
    """A transform that only a loader can run, where it makes batches."""

    def refusal(self) -> TypeError:
        """Return the error to raise where it is passed to anything else."""
        raise NotImplementedError


Picture = TypeVar("Picture", Image.Image, "torch.Tensor")


@runtime_checkable
class Transform(BaseTransform, Protocol):
    """
    A step from picture to picture, as a value: equal arguments make equal transforms.

    ``draws`` uniform numbers in [0, 1) decide what is random. Called on a PIL image ("L", "RGB" or "RGBA") or on a
    uint8 tensor ``(..., C, H, W)``, a transform draws them from torch's generator, as torchvision does, or from
    NumPy's in a program that has not imported torch; FastLoader derives them from seed, epoch and sample index.

    Arguments that mean nothing raise ValueError when a transform is built; a picture that it cannot take raises
    SchemaError.
    """

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Perform the steps on the canvas; ``numbers`` are ``(n, draws)``."""
        ...

    def for_fields(self, fields: Iterable[Field]) -> JointTransform:
        """Return this transform for whole samples of these fields, dicts or tuples; FastDataset calls this."""
        fields = tuple(fields)
        return JointTransform(self, fields, leaders_of_lists(fields, where="a sample"))

    def __call__(self, picture: Picture) -> Picture:
        return self.apply(picture, drawn(self.draws))

    def apply(self, picture: Picture, numbers: NDArray[np.float64]) -> Picture:
        """Like a call, but with given numbers ``(draws,)`` instead of random ones."""
        canvas = PlainPicture(picture)
        canvas.doing = self
        self.run(canvas, numbers.reshape(1, self.draws))
        result: Any = canvas.picture
        return result  # type: ignore[no-any-return] # a PIL image stays one, and so does a tensor


class KeepsSize(Transform):
    """
    A transform after which each picture has the size that it had: flips, warps, and RandomApply and OneOf of these.

    On a canvas it does nothing but ``flip`` and ``warp``. ``takes_alpha``: pictures may have any channels.
    """

    takes_alpha: ClassVar[bool] = False
