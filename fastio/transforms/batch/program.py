"""
Programs of colour: what each picture of a batch goes through, as numbers, and how they run natively and on a device.

A program is float64 ``(n, steps, 14)``: for each sample its steps in turn, each a ``Step`` and up to 13 amounts. Native
threads run it on uint8 pictures (``native/src/transform/colours.h`` says what each amount means); torch runs the same
program on a device and on floating pictures, one group of samples of equal steps after the other.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SchemaError
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.torch_steps import CHANGES, MIXES, Mix

__all__ = [
    "COLUMNS",
    "PixelTransform",
    "Program",
    "Programs",
    "Step",
    "check_channels",
    "check_probability",
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


class Programs(Protocol):
    """What makes programs for samples: the leading colour transforms of a loader's list."""

    @property
    def transforms(self) -> Sequence[Any]:
        """The transforms that the programs run, in turn."""
        ...

    def program(self, indices: NDArray[np.int64], shapes: NDArray[np.int64], *, epoch: int) -> Program:
        """
        Return the program of each sample, whose finished pictures have the shapes ``(n, 3)``: height, width, channels.

        A shape of zeros, of a sample with a bad header, gets a program that does nothing.
        """
        ...


@runtime_checkable
class PixelTransform(BatchTransform, Protocol):
    """
    A transform of batches that is a program: each sample by itself, without a change of size.

    On uint8 pictures in host memory, native threads run it: in FastLoader without a device, those that decode.
    """

    @property
    def moves(self) -> bool:
        """Whether pixels may go elsewhere: masks, boxes and points could not follow."""
        return False

    @abstractmethod
    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        """Return the program of n samples; ``numbers`` is ``(n, draws)``, ``size`` their (height, width)."""
        ...

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """Return the program, as it is and with each step's samples in groups."""
        program = self.program(numbers, size)
        return {"program": program, "steps": _groups(program)}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        check_channels(images.shape[1], self)
        if images.device.type == "cpu" and images.dtype == torch.uint8:
            return Pictures(_run_native(images, parameters["program"]), pictures.labels)
        return Pictures(_run_torch(images, parameters["steps"]), pictures.labels)


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


def check_probability(p: object) -> None:
    """Raise ValueError for what is not a number from 0 to 1."""
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"p={p!r}: expected a probability from 0 to 1")


def paint(pixels: NDArray[np.uint8], program: Program, *, is_planar: bool = False) -> None:
    """
    Run programs on pictures ``(n, H, W, C)``, or ``(n, C, H, W)`` if planar, in place.

    Threads are as many as torch uses for its own operations.
    """
    status = np.zeros(len(pixels), np.int32)
    program = np.ascontiguousarray(program)
    _native.colour_rows(pixels, program, status, _pool(len(pixels)), planar=is_planar).wait()
    if status.any():
        raise MemoryError("no memory to change colours in")


_pools: dict[tuple[int, int], _native.ThreadPool] = {}


def _pool(count: int) -> _native.ThreadPool | None:
    """Return the threads of this process for work on a batch; None if the calling thread is enough."""
    threads = torch.get_num_threads()
    if threads < 2 or count < 2:
        return None
    key = os.getpid(), threads
    if key not in _pools:
        _pools[key] = _native.ThreadPool(threads)
    return _pools[key]


def _run_native(images: torch.Tensor, program: Program) -> torch.Tensor:
    """Return pictures (n, C, H, W) after their programs, in the memory format that they have."""
    is_last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    layout = torch.channels_last if is_last else torch.contiguous_format
    done = images.clone(memory_format=layout)
    if program.shape[1] and images.numel():
        pixels = done.permute(0, 2, 3, 1) if is_last else done
        paint(pixels.numpy(), program, is_planar=not is_last)
    return done


def _groups(program: Program) -> list[Mapping[str, Any]]:
    """Return for each step in turn which samples do what, by how much."""
    steps: list[Mapping[str, Any]] = []
    for place in range(program.shape[1]):
        kinds, groups = program[:, place, 0], {}
        for kind in np.unique(kinds).tolist():
            if kind != Step.NONE:
                which = np.flatnonzero(kinds == kind)
                amounts, step = program[which, place, 1:], Step(int(kind))
                groups[step.name.lower()] = {
                    "which": torch.from_numpy(which),
                    "amounts": torch.from_numpy(amounts).float(),
                    # Sizes of kernels, which the host has to know.
                    "reaches": [int(size) // 2 for size in amounts[:, :2].max(axis=0)] if step == Step.BLUR else [],
                }
        steps.append(groups)
    return steps


def _run_torch(images: torch.Tensor, steps: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """Run the steps with torch's operations, wherever the pictures are."""
    mix = Mix(images, images.new_zeros(images.shape, dtype=torch.float32) if _mixes(steps) else images)
    for groups in steps:
        changed = images.clone() if groups else images
        for name, group in groups.items():
            which, amounts = group["which"], group["amounts"]
            chosen = images.index_select(0, which)
            if name in MIXES:
                result = MIXES[name](chosen, mix, which, amounts)
            else:
                result = CHANGES[name](chosen, amounts, *group["reaches"])
            changed.index_copy_(0, which, result)
        images = changed
    return images


def _mixes(steps: Sequence[Mapping[str, Any]]) -> bool:
    return any(name in MIXES for groups in steps for name in groups)
