"""PerSample and PerBatch: a user's own Python functions among transforms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.types.options import explains_fields

__all__ = ["PerBatch", "PerSample"]


@explains_fields
@dataclass(frozen=True, repr=False)
class PerSample(BatchTransform):
    """
    A Python function of one picture, anywhere in a list of transforms, or in a Compose::

        def darken(picture, numbers):                # uint8 or floating tensor (C, H, W); float64 (draws,)
            return (picture * (1 - 0.5 * numbers[0])).to(picture.dtype)

        transforms = [RandomResizedCrop(224), PerSample(darken, draws=1), RandomHorizontalFlip(), Normalize(mean, std)]

    ``function`` gets a copy of the picture as the transforms before it leave it, on their device, and returns one of
    the same shape and dtype (TypeError otherwise). With ``draws``, it also gets that many uniform numbers in [0, 1),
    which depend on seed, epoch, sample and its place in the list. It sees no labels, masks or boxes, so it must not
    move pixels that they belong to.

    It is called in the thread of the training loop, one picture after the other, in order. An exception in it is a
    SampleError that names the sample and ends the loop, whatever ``on_error`` is. A loader's saved state knows the
    function by its name.
    """

    function: Callable[..., torch.Tensor]
    draws: int = 0

    def __post_init__(self) -> None:
        _check_function(self, self.function)
        if type(self.draws) is not int or self.draws < 0:
            raise ValueError(f"draws={self.draws!r}: expected the count of random numbers per picture, at least 0")

    def __repr__(self) -> str:
        return f"PerSample({_name(self.function)}, draws={self.draws})"

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        return self.parameters_of(numbers, np.arange(len(numbers)))

    def parameters_of(self, numbers: NDArray[np.float64], samples: NDArray[np.int64]) -> Parameters:
        """As ``parameters``, for rows that show these samples, ``(n,)``, by index."""
        return {"numbers": numbers, "samples": samples}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images, numbers, samples = pictures.images, parameters["numbers"], parameters["samples"]
        done = torch.empty_like(images)
        for row, image in enumerate(images):
            try:
                done[row] = self.call(image, numbers[row])
            except _ReturnError:
                raise
            except Exception as exc:  # the user's function may raise anything
                index = int(samples[row])
                raise SampleError(f"[{index}]: {self} raised {exc!r}", index=index) from exc
        return Pictures(done, pictures.labels)

    def call(self, picture: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
        """Return what the function makes of a copy of a picture (C, H, W). Raises TypeError for what is not one."""
        copy = picture.clone(memory_format=torch.contiguous_format)
        made = self.function(copy, numbers) if self.draws else self.function(copy)
        if not isinstance(made, torch.Tensor) or (made.shape, made.dtype) != (picture.shape, picture.dtype):
            is_tensor = isinstance(made, torch.Tensor)
            got = f"{made.dtype} {tuple(made.shape)}" if is_tensor else type(made).__name__
            raise _ReturnError(
                f"{self} returned {got}; expected a picture like the one it got, {picture.dtype} {tuple(picture.shape)}"
            )
        return made


@explains_fields
@dataclass(frozen=True, repr=False)
class PerBatch:
    """
    A Python function from batch to batch, anywhere behind the crops in FastLoader's and DevicePrefetcher's transforms.

    ``function`` gets the batch as the loop would at this point, on the device: pictures and labels, a dict, a tuple;
    with ``views``, the pictures of its view. What it returns goes on. Transforms of fastio behind it find pictures and
    label in the same places, in as many rows. It is called in the thread of the training loop; an exception in it
    ends the loop. A loader's saved state knows the function by its name. A function without PerBatch around it, at
    the end of a list, is the same, without a name in states.
    """

    function: Callable[[Any], Any]

    def __post_init__(self) -> None:
        _check_function(self, self.function)

    def __repr__(self) -> str:
        return f"PerBatch({_name(self.function)})"

    @property
    def draws(self) -> int:
        """None: the function draws for itself, if it does."""
        return 0

    def __call__(self, batch: Any) -> Any:
        """Call the function."""
        return self.function(batch)


class _ReturnError(TypeError):
    """A function returned what is no picture: its author's mistake, not the sample's."""


def _check_function(what: object, function: object) -> None:
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{type(what).__name__}: function={function!r}: expected a function")


def _name(function: object) -> str:
    """Return a name that is the same in the next process."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{name}"
