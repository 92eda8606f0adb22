"""A C function that is called with each finished picture of a batch."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import _native
from fastio._native import PictureFunction
from fastio.types.spans import Spans

PLAN = (1, 0, 2, 2, 2, 2, 0, 0, 2, 2, 0, 0, 0)  # two by two pixels from the second column on
EMPTY = (0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0)

CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p, ctypes.c_int64)


def add(pixels: int, height: int, width: int, channels: int, numbers: int, count: int) -> int:
    """The first number to the first byte, the second one to the last; fails where that is 99."""
    values = np.ctypeslib.as_array(ctypes.cast(pixels, ctypes.POINTER(ctypes.c_uint8)), (height * width * channels,))
    own = np.ctypeslib.as_array(ctypes.cast(numbers, ctypes.POINTER(ctypes.c_double)), (count,))
    values[0] += int(own[0])
    values[-1] += int(own[1])
    return int(own[1] == 99)


@pytest.fixture(scope="module")
def function() -> PictureFunction:
    call = CALL(add)
    address = ctypes.cast(call, ctypes.c_void_p).value
    assert address is not None
    return PictureFunction(address, call)


def gather(function: PictureFunction, *, planar: bool, **options: Any) -> tuple[NDArray[np.uint8], list[int]]:
    """Three pictures of 2 x 3 x 3 bytes through two plans and an empty one."""
    data = np.arange(54, dtype=np.uint8)
    out, status = np.zeros((3, 3, 2, 2) if planar else (3, 2, 2, 3), np.uint8), np.full(3, -1, np.int32)
    _native.gather_transformed(
        Spans.of(data, np.array([0, 18, 36]), np.full(3, 18)), np.array([PLAN, PLAN, EMPTY], np.int32), out, status,
        filter=0, fill=b"\5\5\5", planar=planar, height=2, width=3, function=function, **options,
    ).wait()  # fmt: skip
    return out.transpose(0, 2, 3, 1) if planar else out, status.tolist()


@pytest.mark.parametrize("planar", [False, True])
def test_it_gets_height_width_channels(function: PictureFunction, planar: bool) -> None:
    """Each finished picture with its own numbers, channels last in either layout, edges included."""
    found, status = gather(function, planar=planar, numbers=np.array([[1, 2], [3, 4], [5, 6.0]]))

    wanted = np.arange(54).reshape(3, 2, 3, 3)[:, :, 1:].copy()
    wanted[2] = 5
    wanted[:, 0, 0, 0] += [1, 3, 5]
    wanted[:, 1, 1, 2] += [2, 4, 6]
    np.testing.assert_array_equal(wanted, found)
    assert [_native.OK] * 3 == status


@pytest.mark.parametrize("planar", [False, True])
def test_what_it_returns_is_a_status(function: PictureFunction, planar: bool) -> None:
    """Anything but 0 is FAILED, for that picture alone."""
    _, status = gather(function, planar=planar, numbers=np.array([[0, 0], [0, 99], [0, 0.0]]))

    assert [_native.OK, _native.FAILED, _native.OK] == status


def test_it_needs_numbers(function: PictureFunction) -> None:
    """One row for each picture, of doubles."""
    with pytest.raises(ValueError, match="function goes with numbers"):
        gather(function, planar=False)
    with pytest.raises(ValueError, match="numbers has 2 entries"):
        gather(function, planar=False, numbers=np.zeros((2, 2)))
    with pytest.raises(TypeError):
        gather(function, planar=False, numbers=np.zeros((3, 2), np.float32))
