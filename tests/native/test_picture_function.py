"""A C function that is called with pictures of a batch, as a step of their programs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import _native
from fastio.transforms.program import COLUMNS, Step
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


CALLED = CALL(add)
ADDRESS = ctypes.cast(CALLED, ctypes.c_void_p).value


def calls(numbers: Any, *, address: Any = ADDRESS, count: int = 2) -> NDArray[np.float64]:
    """A program for each row of numbers: the function, and what is left of 255 in each byte."""
    numbers = np.asarray(numbers, np.float64)
    program = np.zeros((len(numbers), 2, COLUMNS))
    program[:, 0, 0], program[:, 1, 0] = Step.CALL, Step.INVERT
    program[:, 0, 1], program[:, 0, 2] = address, count
    program[:, 0, 3:5] = numbers
    return program


def gather(colours: NDArray[np.float64], *, planar: bool) -> tuple[NDArray[np.uint8], list[int]]:
    """Three pictures of 2 x 3 x 3 bytes through two plans and an empty one."""
    data = np.arange(54, dtype=np.uint8)
    out, status = np.zeros((3, 3, 2, 2) if planar else (3, 2, 2, 3), np.uint8), np.full(3, -1, np.int32)
    _native.gather_transformed(
        Spans.of(data, np.array([0, 18, 36]), np.full(3, 18)), np.array([PLAN, PLAN, EMPTY], np.int32), out, status,
        filter=0, fill=b"\5\5\5", planar=planar, height=2, width=3, colours=colours,
    ).wait()  # fmt: skip
    return out.transpose(0, 2, 3, 1) if planar else out, status.tolist()


@pytest.mark.parametrize("planar", [False, True])
def test_it_gets_height_width_channels(planar: bool) -> None:
    """Each picture with its own numbers, channels last in either layout, edges included; other steps follow."""
    found, status = gather(calls([[1, 2], [3, 4], [5, 6]]), planar=planar)

    wanted = np.arange(54).reshape(3, 2, 3, 3)[:, :, 1:].copy()
    wanted[2] = 5
    wanted[:, 0, 0, 0] += [1, 3, 5]
    wanted[:, 1, 1, 2] += [2, 4, 6]
    np.testing.assert_array_equal(255 - wanted, found)
    assert [_native.OK] * 3 == status


@pytest.mark.parametrize("planar", [False, True])
def test_what_it_returns_is_a_status(planar: bool) -> None:
    """Anything but 0 is FAILED, for that picture alone; so it is for pictures in memory."""
    program = calls([[0, 0], [0, 99], [0, 0]])
    pictures, painted = np.zeros((3, 3, 4, 4) if planar else (3, 4, 4, 3), np.uint8), np.full(3, -1, np.int32)
    _, status = gather(program, planar=planar)
    _native.colour_rows(pictures, program, painted, planar=planar).wait()

    assert [_native.OK, _native.FAILED, _native.OK] == status == painted.tolist()
    assert [255, 255] == [pictures[0].max(), pictures[2].min()]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (calls([[0, 0]] * 3, address=0), "calls no function"),
        (calls([[0, 0]] * 3, address=0.5), "calls no function"),
        (calls([[0, 0]] * 3, count=12), "numbers of a function are missing"),
        (calls([[0, 0]] * 3, count=-1), "takes no such number of numbers"),
    ],
)
def test_a_call_of_nothing_is_refused(program: NDArray[np.float64], words: str) -> None:
    """Before anything is called."""
    with pytest.raises(ValueError, match=words):
        gather(program, planar=False)
