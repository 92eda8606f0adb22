"""RandomApply and OneOf: transforms of which each sample gets all, one or none, and mixes of which a batch gets one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import check_probability
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.mix import MIXES, Mix
from fastio.transforms.batch.program import PixelTransform, program_for
from fastio.transforms.compiled import Called, Compiled
from fastio.transforms.program import COLUMNS, Program, joined
from fastio.transforms.transform import Transform
from fastio.transforms.warp import KEEPS_SIZE
from fastio.types.options import explains_fields

__all__ = ["OneOf", "RandomApply", "mixes_of"]


@explains_fields
@dataclass(frozen=True)
class RandomApply(PixelTransform):
    """
    Apply all ``transforms`` in turn, with probability ``p``, or none of them.

    They keep the size: ColorJitter, GaussianBlur, RandAugment, RandomErasing, RandomRotation, Compiled, another
    RandomApply, ...
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

    They keep the size, as in RandomApply, and each sample gets one of its own; or they are MixUp and CutMix, and the
    whole batch gets one::

        OneOf([MixUp(0.8, num_classes=1000), CutMix(1.0, num_classes=1000)], p=[0.5, 0.5])

    Draws one number, which one, and then those of each transform; for a batch, those of its first sample count.
    """

    transforms: Sequence[PixelTransform | Transform | Mix]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", _checked(self, self.transforms, with_mixes=True))
        if self.p is None:
            return
        weights = self.p if isinstance(self.p, (list, tuple, np.ndarray)) else ()
        is_fine = len(weights) == len(self.transforms) and all(
            isinstance(weight, Real) and 0 <= float(weight) < math.inf for weight in weights
        )
        if not is_fine or not 0 < sum(weights) < math.inf:
            raise ValueError(
                f"p={self.p!r}: expected a list with a finite weight of at least 0 for each of "
                f"{len(self.transforms)} transforms, not all of them 0"
            )
        weights = tuple(map(float, weights))
        object.__setattr__(self, "p", weights)

    @property
    def moves(self) -> bool:
        """Whether one of them does."""
        return any(not isinstance(step, BatchTransform) or getattr(step, "moves", False) for step in self.transforms)

    @property
    def draws(self) -> int:
        """One number, and those of each transform."""
        return 1 + sum(transform.draws for transform in self.transforms)

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        chosen = self._chosen(numbers)
        colours = [step for step in self.transforms if isinstance(step, (PixelTransform, Transform))]
        programs = _programs(colours, numbers[:, 1:], size)
        done = np.zeros((len(numbers), max(program.shape[1] for program in programs), COLUMNS))
        for place, program in enumerate(programs):
            which = chosen == place
            done[which, : program.shape[1]] = program[which]
        return done

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        if mixes_of(self):
            return self.mixed(numbers, size, np.arange(len(numbers)))
        return super().parameters(numbers, size)

    def mixed(self, numbers: NDArray[np.float64], size: tuple[int, int], samples: NDArray[np.int64]) -> Parameters:
        """As Mix.mixed, of the one that is drawn."""
        mixes = mixes_of(self)
        chosen = int(self._chosen(numbers)[0]) if len(numbers) else 0
        first = 1 + sum(mix.draws for mix in mixes[:chosen])
        own = numbers[:, first : first + mixes[chosen].draws]
        return {"chosen": chosen, "own": mixes[chosen].mixed(own, size, samples)}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        mixes = mixes_of(self)
        return (
            mixes[parameters["chosen"]].run(pictures, parameters["own"]) if mixes else super().run(pictures, parameters)
        )

    def _chosen(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return which of the transforms each sample gets."""
        weights = np.ones(len(self.transforms)) if self.p is None else np.array(self.p)
        limits = np.cumsum(weights / weights.sum())[:-1]
        return np.searchsorted(limits, numbers[:, 0], side="right")


def mixes_of(transform: object) -> tuple[Mix, ...]:
    """Return the MixUp or CutMix that a transform is, or those of which it draws one; none for others."""
    if isinstance(transform, MIXES):
        return (transform,)
    return (
        tuple(step for step in transform.transforms if isinstance(step, MIXES)) if isinstance(transform, OneOf) else ()
    )


def _checked(what: object, transforms: object, *, with_mixes: bool = False) -> tuple[Any, ...]:
    name = type(what).__name__
    if not isinstance(transforms, Sequence) or not transforms:
        raise TypeError(f"{name}: transforms={transforms!r}: expected a list of transforms of colours")
    if with_mixes and all(isinstance(transform, MIXES) for transform in transforms):
        return tuple(transforms)
    transforms = tuple(Called(step) if isinstance(step, Compiled) else step for step in transforms)
    for transform in transforms:
        if not isinstance(transform, (PixelTransform, *KEEPS_SIZE)) or mixes_of(transform):
            what = "works on whole batches" if isinstance(transform, BatchTransform) else "changes the size"
            among = ", or MixUp and CutMix alone" if with_mixes else ""
            known = f"ColorJitter, GaussianBlur, RandomRotation, ...{among}"
            raise TypeError(f"{name}: {transform!r} {what}: it takes {known}")
    return transforms


def _programs(
    transforms: Sequence[PixelTransform | Transform], numbers: NDArray[np.float64], size: tuple[int, int]
) -> list[Program]:
    """Return the program of each, made of its own columns of numbers."""
    programs, first = [], 0
    for transform in transforms:
        programs.append(program_for(transform, numbers[:, first : first + transform.draws], size))
        first += transform.draws
    return programs
