"""RandomApply and OneOf: transforms of which each sample gets all, one or none, and mixes of which a batch gets one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import check_probability
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.mix import MIXES, Mix
from fastio.transforms.batch.program import PixelTransform, program_for
from fastio.transforms.canvas import AxisName, Canvas, Ints
from fastio.transforms.compiled import Called, Compiled
from fastio.transforms.matrices import Warp
from fastio.transforms.program import COLUMNS, Program, joined
from fastio.transforms.transform import BaseTransform, KeepsSize
from fastio.types.options import explains_fields

__all__ = ["OneOf", "RandomApply", "mixes_of"]


class _Choice(BaseTransform):
    """
    What RandomApply and OneOf have in common: each makes objects of a class of its own for lists that only move pixels,
    which masks, boxes and points follow, and for lists with colours, which are transforms of batches.
    """

    _kinds: ClassVar[tuple[Any, Any]]  # classes for moves, for colours

    def __new__(cls, transforms: Any = (), *_: Any, **__: Any) -> Self:
        if "_kinds" not in vars(cls):  # one of these two, or a user's own
            return super().__new__(cls)
        moves = isinstance(transforms, Sequence) and all(isinstance(step, KeepsSize) for step in transforms)
        kind: type[Self] = cls._kinds[0 if transforms and moves else 1]
        return super().__new__(kind)

    def __reduce__(self) -> Any:
        values = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type] # a dataclass
        return next(kind for kind in type(self).__mro__ if "_kinds" in vars(kind)), values


@explains_fields
@dataclass(frozen=True)
class RandomApply(_Choice):
    """
    Apply all ``transforms`` in turn, with probability ``p``, or none of them.

    They keep the size: ColorJitter, GaussianBlur, RandAugment, RandomErasing, RandomRotation, Compiled, another
    RandomApply, ... If all of them are flips and warps, masks, boxes and points follow.
    Draws one number, whether, and then those of each transform.
    """

    transforms: Sequence[PixelTransform | KeepsSize]
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)
        object.__setattr__(self, "transforms", _checked(self, self.transforms))

    @property
    def draws(self) -> int:
        """One number, and those of each transform."""
        return 1 + sum(transform.draws for transform in self.transforms)


class _MovesApply(RandomApply, KeepsSize):
    @property
    def takes_alpha(self) -> bool:  # type: ignore[override] # of others, the class tells
        """Whether all of them do."""
        return all(transform.takes_alpha for transform in self.transforms if isinstance(transform, KeepsSize))

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Move the pictures for which the first number says so."""
        first = 1
        for transform in self.transforms:
            own = numbers[:, first : first + transform.draws]
            first += transform.draws
            _move(canvas, transform, own, numbers[:, 0] < self.p)


class _ColoursApply(RandomApply, PixelTransform):
    @property
    def moves(self) -> bool:
        """Whether one of them does."""
        return any(_moves(step) for step in self.transforms)

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        program = joined(_programs(self.transforms, numbers[:, 1:], size), len(numbers))
        program[numbers[:, 0] >= self.p] = 0
        return program


RandomApply._kinds = _MovesApply, _ColoursApply


@explains_fields
@dataclass(frozen=True)
class OneOf(_Choice):
    """
    Apply one of ``transforms``, drawn with the weights ``p`` (equal ones without): torchvision's RandomChoice.

    They keep the size, as in RandomApply, and each sample gets one of its own; or they are MixUp and CutMix, and the
    whole batch gets one::

        OneOf([MixUp(0.8, num_classes=1000), CutMix(1.0, num_classes=1000)], p=[0.5, 0.5])

    If all of them are flips and warps, masks, boxes and points follow. Draws one number, which one, and then those of
    each transform; for a batch, those of its first sample count.
    """

    transforms: Sequence[PixelTransform | KeepsSize | Mix]
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
    def draws(self) -> int:
        """One number, and those of each transform."""
        return 1 + sum(transform.draws for transform in self.transforms)

    def _chosen(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return which of the transforms each sample gets."""
        weights = np.ones(len(self.transforms)) if self.p is None else np.array(self.p)
        limits = np.cumsum(weights / weights.sum())[:-1]
        return np.searchsorted(limits, numbers[:, 0], side="right")


class _MovesOne(OneOf, KeepsSize):
    @property
    def takes_alpha(self) -> bool:  # type: ignore[override] # of others, the class tells
        """Whether all of them do."""
        return all(transform.takes_alpha for transform in self.transforms if isinstance(transform, KeepsSize))

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Move each picture by the transform that its first number chooses."""
        chosen, first = self._chosen(numbers), 1
        for place, transform in enumerate(self.transforms):
            own = numbers[:, first : first + transform.draws]
            first += transform.draws
            _move(canvas, transform, own, chosen == place)


class _ColoursOne(OneOf, PixelTransform):
    @property
    def moves(self) -> bool:
        """Whether one of them does."""
        return any(_moves(step) for step in self.transforms)

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        chosen = self._chosen(numbers)
        programs = _programs(self.transforms, numbers[:, 1:], size)
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


OneOf._kinds = _MovesOne, _ColoursOne
for _kind in (_MovesApply, _ColoursApply, _MovesOne, _ColoursOne):  # to users, two classes are one
    _kind.__name__ = _kind.__qualname__ = "RandomApply" if issubclass(_kind, RandomApply) else "OneOf"


def _moves(transform: object) -> bool:
    return isinstance(transform, KeepsSize) or bool(getattr(transform, "moves", False))


def _move(canvas: Canvas, transform: Any, numbers: NDArray[np.float64], chosen: NDArray[np.bool_]) -> None:
    """Run a transform that keeps the size, for the pictures for which ``chosen``, ``(n,)``, is set."""
    transform.run(_Some(canvas, chosen), numbers)


class _Some:
    """A canvas of which only some pictures are moved; what KeepsSize does not do to one, it does not have."""

    def __init__(self, canvas: Canvas, chosen: NDArray[np.bool_]) -> None:
        self._canvas, self._chosen = canvas, chosen
        self.doing = canvas.doing

    @property
    def height(self) -> Ints:
        return self._canvas.height

    @property
    def width(self) -> Ints:
        return self._canvas.width

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        self._canvas.flip(mask & self._chosen, axis=axis)

    def warp(self, warp: Warp) -> None:
        self._canvas.warp(warp.only(self._chosen))


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
        if not isinstance(transform, (PixelTransform, KeepsSize)) or mixes_of(transform):
            what = "works on whole batches" if isinstance(transform, BatchTransform) else "changes the size"
            among = ", or MixUp and CutMix alone" if with_mixes else ""
            known = f"ColorJitter, GaussianBlur, RandomRotation, ...{among}"
            raise TypeError(f"{name}: {transform!r} {what}: it takes {known}")
    return transforms


def _programs(transforms: Sequence[Any], numbers: NDArray[np.float64], size: tuple[int, int]) -> list[Program]:
    """Return the program of each, made of its own columns of numbers."""
    programs, first = [], 0
    for transform in transforms:
        programs.append(program_for(transform, numbers[:, first : first + transform.draws], size))
        first += transform.draws
    return programs
