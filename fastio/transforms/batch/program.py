"""
Transforms of batches that are programs, and how these run natively and on a device.

Native threads run a program on uint8 pictures in host memory; torch runs the same program on a device and on floating
pictures, one group of samples of equal steps after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.torch_steps import CHANGES, MIXES, Mix
from fastio.transforms.canvas import Steps
from fastio.transforms.plan import COLUMNS, FLIPS, Plan
from fastio.transforms.program import Program, Step, check_channels, joined, paint, program_of
from fastio.types.spans import distinct

__all__ = [
    "PixelTransform",
    "Programs",
    "grouped",
    "program_for",
    "run_program",
]


class Programs(Protocol):
    """What makes programs for samples: the leading colour transforms of a loader's list."""

    @property
    def transforms(self) -> Sequence[Any]:
        """The transforms that the programs run, in turn."""
        ...

    def program(self, indices: NDArray[np.int64], shapes: NDArray[np.int64], *, epoch: int) -> Program:
        """
        Return the program of each sample, whose finished pictures have the shapes ``(n, 3)``: height, width, channels.

        A shape of zeros, of a sample with a bad header, gets a program that does nothing. Raises RefusedPicturesError
        for pictures that a transform cannot take.
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
        return grouped(self.program(numbers, size))

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        check_channels(pictures.images.shape[1], self)
        return Pictures(run_program(pictures.images, parameters), pictures.labels)


def program_for(transform: Steps | PixelTransform, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
    """
    Return the program of a transform that keeps the size: of colours, or a flip or warp, whose plan is one of these.
    """
    if isinstance(transform, PixelTransform):
        return transform.program(numbers, size)
    plan = Plan(np.array(size[:1]), np.array(size[1:]))
    plan.doing = transform
    transform.run(plan, numbers)
    count = len(numbers)
    flips, steps = plan.rows(count)[:, COLUMNS.index("flip")], []
    for step, bit in ((Step.FLIP_X, FLIPS["x"]), (Step.FLIP_Y, FLIPS["y"])):
        if (flips & bit).any():
            flip = program_of(count, (step, 0))
            flip[flips & bit == 0] = 0
            steps.append(flip)
    warps = plan.program(count)
    return joined(steps if warps is None else [*steps, warps], count)


def grouped(program: Program) -> Parameters:
    """Return what ``run_program`` runs: the program as it is, and with each step's samples in groups."""
    return {"program": program, "steps": _groups(program)}


def run_program(images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
    """Return pictures (B, C, H, W) after their programs: natively for uint8 in host memory, by torch elsewhere."""
    if images.device.type == "cpu" and images.dtype == torch.uint8:
        return _run_native(images, parameters["program"])
    return _run_torch(images, parameters["steps"])


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
        for kind in distinct(kinds).tolist():
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
