"""
Programs: what finished pictures go through, as numbers, and how native threads run them.

A program is float64 ``(n, steps, 14)``: for each sample its steps in turn, each a ``Step`` and up to 13 amounts;
``native/src/transform/colours.h`` says what each amount means. Masks run the steps that move pixels.

A program that begins with a canvas says what the plan of the sample fills: a picture of another size than the row, with
a filter and a fill of its own. Further plans, each with its canvas, lead to the row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.machine import available_cpus

__all__ = [
    "COLUMNS",
    "Program",
    "Step",
    "batch_threads",
    "check_channels",
    "joined",
    "paint",
    "program_of",
]

COLUMNS: Final = 14

Program = NDArray[np.float64]  # (n, steps, COLUMNS)


class Step(IntEnum):
    """The steps of programs, numbered as in the native core."""

    NONE = 0
    BRIGHTNESS = 1
    CONTRAST = 2
    SATURATION = 3
    HUE = 4
    GREY = 5
    INVERT = 6
    SOLARIZE = 7
    POSTERIZE = 8
    AUTOCONTRAST = 9
    EQUALIZE = 10
    SHARPNESS = 11
    BLUR = 12
    ERASE = 13
    FLIP_X = 14
    FLIP_Y = 15
    AFFINE = 16
    PERSPECTIVE = 17
    BEGIN_MIX = 18
    BEGIN_CHAIN = 19
    ADD_TO_MIX = 20
    END_MIX = 21
    CALL = 22
    MORE_NUMBERS = 23
    CANVAS = 24
    PLAN = 25
    PERMUTE = 26
    NOISE = 27
    PATCHES = 28


def program_of(count: int, *steps: tuple[Step, Any]) -> Program:
    """
    Return the same steps for ``count`` samples, each with its amounts: numbers, or arrays ``(count,)`` and
    ``(count, k)``.
    """
    program = np.zeros((count, len(steps), COLUMNS))
    for place, (step, amounts) in enumerate(steps):
        program[:, place, 0] = step
        values = np.asarray(amounts, np.float64)
        if values.ndim < 2:
            values = values.reshape(-1, 1)
        program[:, place, 1 : 1 + values.shape[-1]] = values
    return program


def joined(programs: Sequence[Program], count: int) -> Program:
    """Return one program that runs these in turn."""
    return np.concatenate(programs, axis=1) if programs else np.zeros((count, 0, COLUMNS))


def check_channels(channels: int, what: object) -> None:
    """Raise SchemaError for pictures without one or three channels, unless the transform takes any."""
    if channels not in (1, 3) and not getattr(what, "takes_alpha", False):
        raise SchemaError(f"{what}: expected pictures of 1 or 3 channels, got {channels}")


def paint(pixels: NDArray[np.uint8], program: Program, *, is_planar: bool = False) -> None:
    """
    Run programs on pictures ``(n, H, W, C)``, or ``(n, C, H, W)`` if planar, in place.

    Threads are those of ``batch_threads``. Raises ValueError if a function of the user's, compiled
    for a program, raised an exception.
    """
    status = np.zeros(len(pixels), np.int32)
    program = np.ascontiguousarray(program)
    _native.colour_rows(pixels, program, status, _pool(len(pixels)), planar=is_planar).wait()
    failed = np.flatnonzero(status == _native.FAILED)
    if len(failed):
        raise ValueError(f"a function in the transforms raised an exception, for picture {failed[0]} of the batch")
    if status.any():
        raise MemoryError("no memory to change colours in")


def batch_threads() -> int:
    """
    Return how many threads work on a batch beside the loop: as many as torch uses for its own operations; where torch
    was not imported, the CPUs that this process may use.
    """
    return torch.get_num_threads() if "torch" in sys.modules else available_cpus()


_pools: dict[tuple[int, int], _native.ThreadPool] = {}


def _pool(count: int) -> _native.ThreadPool | None:
    """Return the threads of this process for work on a batch; None if the calling thread is enough."""
    threads = 1 if count < 2 else batch_threads()
    if threads < 2:
        return None
    key = os.getpid(), threads
    if key not in _pools:
        _pools[key] = _native.ThreadPool(threads)
    return _pools[key]
