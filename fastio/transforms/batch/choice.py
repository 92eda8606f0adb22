"""RandomApply and OneOf: transforms of which each sample gets all, one or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import check_probability
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.program import PixelTransform, program_for
from fastio.transforms.program import COLUMNS, Program, joined
from fastio.transforms.transform import Transform
from fastio.transforms.warp import KEEPS_SIZE
from fastio.types.options import explains_fields

__all__ = ["OneOf", "RandomApply"]


@explains_fields
@dataclass(frozen=True)
class RandomApply(PixelTransform):
    """
    Apply all ``transforms`` in turn, with probability ``p``, or none of them.

    They keep the size: ColorJitter, GaussianBlur, RandAugment, RandomErasing, RandomRotation, another RandomApply, ...
    Draws one number, whether, and then those of each transform.
    """

    transforms: Sequence[PixelTransform | Transform]
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)
        object.__setattr__(self, "transforms", _checked(self, self.transforms))

    @property
    def moves(self) -> bool:
        """Whether one of them does."""
        return any(not isinstance(step, PixelTransform) or step.moves for step in self.transforms)

    @property
    def draws(self) -> int:
        """One number, and those of each transform."""
        return 1 + sum(transform.draws for transform in self.transforms)

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        program = joined(_programs(self.transforms, numbers[:, 1:], size), len(numbers))
        program[numbers[:, 0] >= self.p] = 0
        return program


@explains_fields
@dataclass(frozen=True)
class OneOf(PixelTransform):
    """
    Apply one of ``transforms``, drawn with the weights ``p`` (equal ones without): torchvision's RandomChoice.

    They keep the size, as in RandomApply. Draws one number, which one, and then those of each transform.
    """

    transforms: Sequence[PixelTransform | Transform]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", _checked(self, self.transforms))
        if self.p is None:
            return
        weights = tuple(float(weight) for weight in self.p)
        if len(weights) != len(self.transforms) or min(weights) < 0 or not sum(weights) > 0:
            raise ValueError(f"p={self.p!r}: expected a weight of at least 0 for each of {len(self.transforms)}")
        object.__setattr__(self, "p", weights)

    @property
    def moves(self) -> bool:
        """Whether one of them does."""
        return any(not isinstance(step, PixelTransform) or step.moves for step in self.transforms)

    @property
    def draws(self) -> int:
        """One number, and those of each transform."""
        return 1 + sum(transform.draws for transform in self.transforms)

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        weights = np.ones(len(self.transforms)) if self.p is None else np.array(self.p)
        limits = np.cumsum(weights / weights.sum())[:-1]
        chosen = np.searchsorted(limits, numbers[:, 0], side="right")
        programs = _programs(self.transforms, numbers[:, 1:], size)
        done = np.zeros((len(numbers), max(program.shape[1] for program in programs), COLUMNS))
        for place, program in enumerate(programs):
            which = chosen == place
            done[which, : program.shape[1]] = program[which]
        return done


def _checked(what: object, transforms: object) -> tuple[PixelTransform | Transform, ...]:
    name = type(what).__name__
    if not isinstance(transforms, Sequence) or not transforms:
        raise TypeError(f"{name}: transforms={transforms!r}: expected a list of transforms of colours")
    for transform in transforms:
        if not isinstance(transform, (PixelTransform, *KEEPS_SIZE)):
            what = "works on whole batches" if isinstance(transform, BatchTransform) else "changes the size"
            raise TypeError(f"{name}: {transform!r} {what}: it takes ColorJitter, GaussianBlur, RandomRotation, ...")
    return tuple(transforms)


def _programs(
    transforms: Sequence[PixelTransform | Transform], numbers: NDArray[np.float64], size: tuple[int, int]
) -> list[Program]:
    """Return the program of each, made of its own columns of numbers."""
    programs, first = [], 0
    for transform in transforms:
        programs.append(program_for(transform, numbers[:, first : first + transform.draws], size))
        first += transform.draws
    return programs
