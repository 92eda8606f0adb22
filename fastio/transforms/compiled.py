"""Compiled: a user's own function on pixels, compiled by numba and called by native threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import isfunction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import Parameters, Pictures
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.canvas import Canvas, PixelFunction
from fastio.transforms.program import COLUMNS, Program, Step
from fastio.transforms.transform import Transform
from fastio.types.options import explains_fields

__all__ = ["Called", "Compiled"]

# Lines of numba's messages that say nothing about the user's function.
_NOISE = re.compile(r"Failed in nopython mode pipeline|^\s*$|^During: ")


@explains_fields
@dataclass(frozen=True)
class Compiled(Transform):
    """
    A function of your own, compiled by numba: FastLoader's threads call it on each picture, without the GIL::

        def brighten(image, numbers):               # uint8 (H, W, C), changed in place; float64 (draws,)
            factor = 0.8 + 0.4 * numbers[0]
            for y in range(image.shape[0]):
                for x in range(image.shape[1]):
                    for c in range(image.shape[2]):
                        image[y, x, c] = min(255.0, image[y, x, c] * factor)

        FastLoader(dataset, 256, transforms=[RandomResizedCrop(224), Compiled(brighten, draws=1)])

    ``function`` is plain Python or already compiled with ``numba.njit``, without ``parallel=True``. ``numbers`` are
    ``draws`` uniform numbers in [0, 1) for this picture. Take randomness from nowhere else: then a picture depends
    only on seed, epoch and sample. Compiled may stand anywhere in a list, and more than once: behind crops and among
    colours and flips, the threads that decode call it; elsewhere, it is called on uint8 batches in host memory. Called
    on a PIL image or a tensor, alone or in a Compose, it runs the same compiled code. An exception in the function
    makes the sample a SampleError. As always with numba, an index outside an array goes unnoticed unless you set
    NUMBA_BOUNDSCHECK=1. A loader's saved state knows the function by its name.

    Needs ``pip install 'fastio[numba]'``. Raises ValueError on first use if numba cannot compile the function, and
    SchemaError for floating pictures, or pictures on a GPU.
    """

    function: PixelFunction
    draws: int = 0

    def __post_init__(self) -> None:
        if not isfunction(self.function) and not hasattr(self.function, "py_func"):
            raise TypeError(
                f"function={self.function!r}: expected a function of (image, numbers), plain or compiled with "
                "numba.njit"
            )
        if not isinstance(self.draws, int) or isinstance(self.draws, bool) or self.draws < 0:
            raise ValueError(f"draws={self.draws!r}: expected the count of random numbers per picture, at least 0")
        _numba()

    def __repr__(self) -> str:
        return f"Compiled({_name(self.function)}, draws={self.draws})"

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Call the function on each picture."""
        canvas.call(_dispatcher(self.function), numbers)


# Numbers in the rows of a program that call a function, see native/src/transform/colours.h.
_FIRST, _MORE = COLUMNS - 3, COLUMNS - 1


@dataclass(frozen=True, repr=False)
class Called(PixelTransform):
    """A Compiled as a step of programs, for pictures of any channels."""

    compiled: Compiled
    takes_alpha = True

    def __post_init__(self) -> None:
        _address(_dispatcher(self.compiled.function))  # what cannot be compiled is said now

    def __repr__(self) -> str:
        return repr(self.compiled)

    @property
    def draws(self) -> int:
        """Those of the function."""
        return self.compiled.draws

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        count, draws = numbers.shape
        more = -(-max(draws - _FIRST, 0) // _MORE)
        program = np.zeros((count, 1 + more, COLUMNS))
        program[:, 0, 0], program[:, 1:, 0] = Step.CALL, Step.MORE_NUMBERS
        program[:, 0, 1] = _address(_dispatcher(self.compiled.function))
        program[:, 0, 2] = draws
        program[:, 0, 3 : 3 + draws] = numbers[:, :_FIRST]
        for row in range(more):
            own = numbers[:, _FIRST + row * _MORE : _FIRST + (row + 1) * _MORE]
            program[:, 1 + row, 1 : 1 + own.shape[1]] = own
        return program

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        if images.dtype != torch.uint8 or images.device.type != "cpu":
            raise SchemaError(
                f"{self} changes uint8 pictures in host memory, got {images.dtype} on {images.device}: put it before "
                "Normalize, ToDtype and whatever runs on a device"
            )
        return super().run(pictures, parameters)


@cache  # for as long as the process lives: threads may still call it
def _address(function: PixelFunction) -> int:
    """Return the address of a C function around the canvas's: it returns 0, or 1 if that raised an exception."""
    numba = _numba()
    call = _c_function(numba, function)
    returned = next(iter(function.nopython_signatures)).return_type  # type: ignore[attr-defined] # a dispatcher of numba's
    if returned != numba.types.none:
        raise ValueError(
            f"{_name(function)} returns {returned}, which is ignored: change the image in place, image[:] = ..."
        )
    _compiled.append(call)
    return int(call.address)


_compiled: list[Any] = []  # the code at the addresses


def _numba() -> Any:
    try:
        import numba
    except ImportError as exc:
        raise ImportError("fastio.transforms.Compiled needs numba: pip install 'fastio[numba]'") from exc
    return numba


def _name(function: PixelFunction) -> str:
    plain = getattr(function, "py_func", function)
    return f"{getattr(plain, '__module__', '?')}.{getattr(plain, '__qualname__', repr(plain))}"


@cache
def _dispatcher(function: PixelFunction) -> PixelFunction:
    """Return the function as numba's dispatcher."""
    numba = _numba()
    if not hasattr(function, "py_func"):
        compiled: PixelFunction = numba.njit(nogil=True)(function)
        return compiled
    options = getattr(function, "targetoptions", {})
    if options.get("parallel"):
        raise ValueError(
            f"{_name(function)}: parallel=True does not work for functions that several threads call at once: drop it"
        )
    return function


def _c_function(numba: Any, function: Callable[..., None]) -> Any:
    types, carray = numba.types, numba.carray
    pixels, numbers = types.CPointer(types.uint8), types.CPointer(types.float64)

    def call(pixels: Any, height: int, width: int, channels: int, numbers: Any, count: int) -> int:
        try:
            function(carray(pixels, (height, width, channels)), carray(numbers, (count,)))
        except Exception:  # the only class that numba can catch; the status says that there was one
            return 1
        return 0

    signature = types.int32(pixels, types.int64, types.int64, types.int64, numbers, types.int64)
    try:
        return numba.cfunc(signature)(call)
    except (numba.core.errors.NumbaError, TypeError) as exc:  # TypeError: numba 0.60's for missing arguments
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(exc))
        lines = [line.strip() for line in plain.splitlines() if not _NOISE.search(line)]
        raise ValueError(f"{_name(function)}: numba cannot compile it: {' '.join(lines)[:300]}") from exc
