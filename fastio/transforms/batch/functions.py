"""PerSample and PerBatch: a user's own Python functions among transforms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.values import shown
from fastio.types.options import explains_fields

__all__ = ["FailedSamplesError", "PerBatch", "PerSample"]


@explains_fields
@dataclass(frozen=True, repr=False)
class PerSample(BatchTransform):
    """
    A Python function of one picture, anywhere in a list of transforms, or in a Compose::

        def darken(picture, numbers):                # uint8 or floating tensor (C, H, W); float64 (draws,)
            return (picture * (1 - 0.5 * numbers[0])).to(picture.dtype)

        transforms = [RandomResizedCrop(224), PerSample(darken, draws=1), RandomHorizontalFlip(), Normalize(mean, std)]

    ``function`` gets a copy of the picture as the transforms before it leave it, and returns one of the same shape and
    dtype (TypeError otherwise, which ends the loop). With ``draws``, it also gets that many uniform numbers in [0, 1),
    which depend on seed, epoch, sample and its place in the list. It sees no labels, masks or boxes, so it must not
    move pixels that they belong to. With ``output="numpy"``, pictures are arrays.

    It is called in the thread of the training loop, one picture after the other, in order. An exception in it is a
    SampleError that names the sample, and FastLoader's ``on_error`` says what follows, as for a damaged one: the batch
    is made without it, or with zeros in the place of its pictures as decoded, for which no function is called. So it
    runs on the host, with ``device="cuda"`` before the copy. Elsewhere, in a DevicePrefetcher or where a GPU decodes,
    it runs on the device, and an exception ends the loop. A loader's saved state knows the function by its name.
    """

    function: Callable[..., torch.Tensor]
    draws: int = 0

    def __post_init__(self) -> None:
        _check_function(self, self.function)
        if type(self.draws) is not int or self.draws < 0:
            raise ValueError(f"draws={self.draws!r}: expected the count of random numbers per picture, at least 0")
        _check_call(self)

    def __repr__(self) -> str:
        return f"PerSample({_name(self.function)}, draws={self.draws})"

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        return self.parameters_of(numbers, np.arange(len(numbers)))

    def parameters_of(
        self, numbers: NDArray[np.float64], samples: NDArray[np.int64], are_blank: NDArray[np.bool_] | None = None
    ) -> Parameters:
        """
        As ``parameters``, for rows that show these samples, ``(n,)``, by index; those that ``are_blank`` become zeros.
        """
        blank = np.zeros(len(samples), bool) if are_blank is None else are_blank
        return {"numbers": numbers, "samples": samples, "blank": blank}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        """As BatchTransform.run. Raises FailedSamplesError with an error for each row that the function fails for."""
        images, numbers, samples = pictures.images, parameters["numbers"], parameters["samples"]
        done = np.empty_like(images) if isinstance(images, np.ndarray) else torch.empty_like(images)
        errors: dict[int, SampleError] = {}
        for row, image in enumerate(images):
            if parameters["blank"][row]:
                done[row] = 0
                continue
            try:
                done[row] = self.call(image, numbers[row])
            except SampleError as exc:
                index = int(samples[row])
                errors[row] = SampleError(f"[{index}]: {exc}", index=index)
                errors[row].__cause__ = exc.__cause__
        if errors:
            raise FailedSamplesError(errors)
        return Pictures(done, pictures.labels)

    def call(self, picture: Any, numbers: NDArray[np.float64]) -> Any:
        """
        Return what the function makes of a copy of a picture (C, H, W), a tensor or an array.

        Raises SampleError, which does not know its sample, for an exception in it, and TypeError for what is no
        picture.
        """
        is_array = isinstance(picture, np.ndarray)
        copy = np.array(picture, order="C") if is_array else picture.clone(memory_format=torch.contiguous_format)
        try:
            made = self.function(copy, numbers) if self.draws else self.function(copy)
        except Exception as exc:  # the user's function may raise anything
            raise SampleError(f"{self} raised {exc!r}") from exc
        is_same_kind = isinstance(made, np.ndarray if is_array else torch.Tensor)
        if not is_same_kind or (made.shape, made.dtype) != (picture.shape, picture.dtype):
            got = shown(made) if is_same_kind else type(made).__name__
            raise TypeError(f"{self} returned {got}; expected a picture like the one it got, {shown(picture)}")
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


class FailedSamplesError(Exception):
    """Functions of single pictures failed: ``errors`` has those of the samples, by their place in the batch."""

    def __init__(self, errors: Mapping[int, SampleError]) -> None:
        super().__init__(f"{len(errors)} samples failed")
        self.errors = errors

    @property
    def first(self) -> SampleError:
        """The error of the sample that comes first."""
        return self.errors[min(self.errors)]


def _check_function(what: object, function: object) -> None:
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{type(what).__name__}: function={function!r}: expected a function")


def _check_call(step: PerSample) -> None:
    """Raise TypeError for a function that cannot be called as it would be: it would fail for every sample."""
    given = ("picture", "numbers") if step.draws else ("picture",)
    try:
        signature = inspect.signature(step.function)
    except (TypeError, ValueError):  # of a builtin, that is not known
        return
    try:
        signature.bind(*given)
    except TypeError as exc:
        drawn = "give it a second one, or leave draws= out" if step.draws else "pass draws=N for random numbers"
        raise TypeError(
            f"{step}: called with {' and '.join(given)}, but its arguments are {signature}: {exc}; {drawn}"
        ) from None


def _name(function: object) -> str:
    """Return a name that is the same in the next process."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{name}"
