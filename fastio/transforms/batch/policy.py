"""
RandAugment, TrivialAugmentWide, AutoAugment and AugMix: random changes of shape and colour, by their papers' tables.

RandAugment: Cubuk et al. 2019, arXiv:1909.13719; TrivialAugment: Müller and Hutter 2021, arXiv:2103.10158; AutoAugment:
Cubuk et al. 2018, arXiv:1805.09501; AugMix: Hendrycks et al. 2019, arXiv:1912.02781. Ranges, steps, names and policies
are those that torchvision documents. Each sample draws its own changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import Interpolation
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.matrices import Look, affine_matrices, warp_program
from fastio.transforms.program import COLUMNS, Program, Step, joined, program_of
from fastio.types.options import brief_repr, explains_fields
from fastio.types.spans import distinct

__all__ = ["AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide"]

Size = tuple[int, int]
Policy = Literal["imagenet", "cifar10", "svhn"]


class _Space(NamedTuple):
    """
    What the operations of a policy do at most.

    Shears are tangents, shifts pixels or, below 1, a share of the side; angles degrees; colours differences of the
    factor from 1. ``bits`` of a posterized value are ``bits[0]`` at strength 0 and ``bits[1]`` at the greatest.
    """

    kinds: tuple[str, ...]
    shear: float = 0.3
    shift: float = 150 / 331
    angle: float = 30.0
    colour: float = 0.9
    bits: tuple[int, int] = (8, 4)


_MOVES: Final = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_FACTORS: Final = ("brightness", "saturation", "contrast", "sharpness")
_PLAIN: Final = ("posterize", "solarize", "autocontrast", "equalize")
_SIGNED: Final = frozenset((*_MOVES, *_FACTORS))

_RAND: Final = _Space(("identity", *_MOVES, *_FACTORS, *_PLAIN))
_WIDE: Final = _Space(_RAND.kinds, shear=0.99, shift=32.0, angle=135.0, colour=0.99, bits=(8, 2))
_AUTO: Final = _Space((*_MOVES, *_FACTORS, *_PLAIN, "invert"))
_MIX: Final = _Space((*_MOVES, *_PLAIN, *_FACTORS), shift=1 / 3, bits=(4, 0))
_MIX_MOVES: Final = _MIX._replace(kinds=(*_MOVES, *_PLAIN))


@lru_cache(maxsize=256)
def _strengths(space: _Space, kind: str, bins: int, size: Size) -> NDArray[np.float64]:
    """
    Return the amounts of an operation at each of ``bins`` strengths, in float32 as torchvision's tables are.
    """
    if kind == "posterize":
        most, least = space.bits
        steps = np.arange(bins, dtype=np.float32) / np.float32((bins - 1) / (most - least))
        bits: NDArray[np.float64] = np.rint(most - steps).astype(np.float64)
        return bits
    if kind == "solarize":
        return _linspace(1.0, 0.0, bins) * 255
    ends = {"shear_x": space.shear, "shear_y": space.shear, "rotate": space.angle}
    for name, side in (("translate_x", size[1]), ("translate_y", size[0])):
        ends[name] = space.shift if space.shift >= 1 else space.shift * side
    return _linspace(0.0, ends.get(kind, space.colour), bins)


def _linspace(start: float, end: float, count: int) -> NDArray[np.float64]:
    """
    Return ``torch.linspace`` in float32: from the start, and in the upper half from the end. torch may differ in the
    last bit, and from CPU to CPU, because it fuses a multiplication with an addition where the CPU can.
    """
    first, last = np.float32(start), np.float32(end)
    if count < 2:
        return np.full(count, first, np.float64)
    step, places = (last - first) / np.float32(count - 1), np.arange(count)
    forth, back = first + step * places.astype(np.float32), last - step * (count - 1 - places).astype(np.float32)
    return np.where(places < count // 2, forth, back).astype(np.float64)


def _operations(
    space: _Space,
    chosen: NDArray[np.int64],
    strength: NDArray[np.int64],
    sign: NDArray[np.float64],
    *,
    bins: int,
    size: Size,
    look: Look,
) -> Program:
    """
    Return a program of one step: the operation at place ``chosen`` (n,) of the space, at one of ``bins`` strengths.

    ``sign`` (n,) is 1 or -1, for operations that have one.
    """
    program = np.zeros((len(chosen), 1, COLUMNS))
    for place in distinct(chosen).tolist():
        kind, which = space.kinds[place], np.flatnonzero(chosen == place)
        if kind == "identity":
            continue
        amount = _strengths(space, kind, bins, size)[strength[which]]
        if kind in _SIGNED:
            amount = amount * sign[which]
        program[which] = _operation(kind, amount, size, look)
    return program


def _operation(kind: str, amount: NDArray[np.float64], size: Size, look: Look) -> Program:
    """Return a program of one step with these amounts (n,)."""
    height, width = size
    if kind in ("shear_x", "shear_y"):
        angle = np.degrees(np.arctan(amount))  # about the corner at the top left
        shear = (angle, 0.0) if kind == "shear_x" else (0.0, angle)
        return warp_program(affine_matrices(shear=shear, center=(-width / 2, -height / 2)), look)
    if kind in ("translate_x", "translate_y"):
        shift = np.trunc(amount)
        return warp_program(affine_matrices(translate=(shift, 0.0) if kind == "translate_x" else (0.0, shift)), look)
    if kind == "rotate":  # counter-clockwise
        return warp_program(affine_matrices(angle=-(amount % 360)), look)
    return program_of(len(amount), (Step[kind.upper()], 1 + amount if kind in _FACTORS else amount))


class _Policy(PixelTransform):
    """What the four have in common: how pixels are read that were moved, and a name that leaves out defaults."""

    interpolation: Interpolation
    fill: float | Sequence[float] | None

    def __repr__(self) -> str:
        """Leave out how pixels are read where it is the default."""
        return brief_repr(self, newer=("interpolation", "fill"))

    @property
    def moves(self) -> bool:
        """Policies shear, shift and rotate."""
        return True

    @property
    def _look(self) -> Look:
        return Look.of(self.interpolation, self.fill)


@explains_fields
@dataclass(frozen=True, repr=False)
class RandAugment(_Policy):
    """
    Apply ``num_ops`` of fourteen operations in turn, each with strength ``magnitude`` of ``num_magnitude_bins``.

    Pixels that are moved are read by ``interpolation``, "nearest" or "bilinear"; ``fill`` is the colour outside the
    picture, black without one. Draws two numbers per operation: which one, and its sign.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _check_bins(self.num_magnitude_bins)
        Look.of(self.interpolation, self.fill)
        if self.num_ops < 1 or not 0 <= self.magnitude < self.num_magnitude_bins:
            raise ValueError(
                f"{self}: expected num_ops of at least 1 and a magnitude from 0 to {self.num_magnitude_bins - 1}"
            )

    @property
    def draws(self) -> int:
        """Two numbers per operation: which one, and its sign."""
        return 2 * self.num_ops

    def program(self, numbers: NDArray[np.float64], size: Size) -> Program:
        count, bins, look = len(numbers), self.num_magnitude_bins, self._look
        strength = np.full(count, self.magnitude)
        steps = [
            _operations(_RAND, _place(which, _RAND), strength, _sign(sign), bins=bins, size=size, look=look)
            for which, sign in numbers.T.reshape(self.num_ops, 2, count)
        ]
        return joined(steps, count)


@explains_fields
@dataclass(frozen=True, repr=False)
class TrivialAugmentWide(_Policy):
    """
    Apply one of fourteen operations, with a strength drawn from ``num_magnitude_bins`` levels.

    ``interpolation`` and ``fill`` as in RandAugment. Draws three numbers: which operation, its sign, its strength.
    """

    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _check_bins(self.num_magnitude_bins)
        Look.of(self.interpolation, self.fill)

    @property
    def draws(self) -> int:
        """Three numbers: which operation, its sign, its strength."""
        return 3

    def program(self, numbers: NDArray[np.float64], size: Size) -> Program:
        bins = self.num_magnitude_bins
        chosen, sign, strength = _place(numbers[:, 0], _WIDE), _sign(numbers[:, 1]), _level(numbers[:, 2], bins)
        return _operations(_WIDE, chosen, strength, sign, bins=bins, size=size, look=self._look)


# AutoAugment: one of 25 pairs of operations, each with its probability and its strength of ten.

_AUTO_BINS: Final = 10
_TABLES: Final[Mapping[Policy, str]] = {
    "imagenet": """
        posterize .4 8, rotate .6 9; solarize .6 5, autocontrast .6 0; equalize .8 0, equalize .6 0;
        posterize .6 7, posterize .6 6; equalize .4 0, solarize .2 4; equalize .4 0, rotate .8 8;
        solarize .6 3, equalize .6 0; posterize .8 5, equalize 1 0; rotate .2 3, solarize .6 8;
        equalize .6 0, posterize .4 6; rotate .8 8, saturation .4 0; rotate .4 9, equalize .6 0;
        equalize 0 0, equalize .8 0; invert .6 0, equalize 1 0; saturation .6 4, contrast 1 8;
        rotate .8 8, saturation 1 2; saturation .8 8, solarize .8 7; sharpness .4 7, invert .6 0;
        shear_x .6 5, equalize 1 0; saturation .4 0, equalize .6 0; equalize .4 0, solarize .2 4;
        solarize .6 5, autocontrast .6 0; invert .6 0, equalize 1 0; saturation .6 4, contrast 1 8;
        equalize .8 0, equalize .6 0""",
    "cifar10": """
        invert .1 0, contrast .2 6; rotate .7 2, translate_x .3 9; sharpness .8 1, sharpness .9 3;
        shear_y .5 8, translate_y .7 9; autocontrast .5 0, equalize .9 0; shear_y .2 7, posterize .3 7;
        saturation .4 3, brightness .6 7; sharpness .3 9, brightness .7 9; equalize .6 0, equalize .5 0;
        contrast .6 7, sharpness .6 5; saturation .7 7, translate_x .5 8; equalize .3 0, autocontrast .4 0;
        translate_y .4 3, sharpness .2 6; brightness .9 6, saturation .2 8; solarize .5 2, invert 0 0;
        equalize .2 0, autocontrast .6 0; equalize .2 0, equalize .6 0; saturation .9 9, equalize .6 0;
        autocontrast .8 0, solarize .2 8; brightness .1 3, saturation .7 0; solarize .4 5, autocontrast .9 0;
        translate_y .9 9, translate_y .7 9; autocontrast .9 0, solarize .8 3; equalize .8 0, invert .1 0;
        translate_y .7 9, autocontrast .9 0""",
    "svhn": """
        shear_x .9 4, invert .2 0; shear_y .9 8, invert .7 0; equalize .6 0, solarize .6 6;
        invert .9 0, equalize .6 0; equalize .6 0, rotate .9 3; shear_x .9 4, autocontrast .8 0;
        shear_y .9 8, invert .4 0; shear_y .9 5, solarize .2 6; invert .9 0, autocontrast .8 0;
        equalize .6 0, rotate .9 3; shear_x .9 4, solarize .3 3; shear_y .8 8, invert .7 0;
        equalize .9 0, translate_y .6 6; invert .9 0, equalize .6 0; contrast .3 3, rotate .8 4;
        invert .8 0, translate_y 0 2; shear_y .7 6, solarize .4 8; invert .6 0, rotate .8 4;
        shear_y .3 7, translate_x .9 3; shear_x .1 6, invert .6 0; solarize .7 2, translate_y .6 7;
        shear_y .8 4, invert .8 0; shear_x .7 9, translate_y .8 3; shear_y .8 5, autocontrast .7 0;
        shear_x .7 2, invert .1 0""",
}


class _Table(NamedTuple):
    """A policy as arrays (pairs, 2): places in ``_AUTO``, probabilities, strengths."""

    chosen: NDArray[np.int64]
    p: NDArray[np.float64]
    strength: NDArray[np.int64]


@lru_cache(maxsize=3)
def _table(policy: Policy) -> _Table:
    words = [entry.split() for pair in _TABLES[policy].split(";") for entry in pair.split(",")]
    chosen = np.array([_AUTO.kinds.index(kind) for kind, _, _ in words]).reshape(-1, 2)
    p = np.array([float(p) for _, p, _ in words]).reshape(-1, 2)
    return _Table(chosen, p, np.array([int(strength) for _, _, strength in words]).reshape(-1, 2))


@explains_fields
@dataclass(frozen=True, repr=False)
class AutoAugment(_Policy):
    """
    Apply one of 25 pairs of operations that were found for ``policy``: "imagenet", "cifar10" or "svhn".

    ``interpolation`` and ``fill`` as in RandAugment. Draws five numbers: which pair, then for each operation whether,
    and its sign.
    """

    policy: Policy = "imagenet"
    interpolation: Interpolation = "nearest"
    fill: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        # torchvision's AutoAugmentPolicy has these words as values.
        object.__setattr__(self, "policy", getattr(self.policy, "value", self.policy))
        if self.policy not in get_args(Policy):
            raise ValueError(f"policy={self.policy!r}: expected one of {', '.join(get_args(Policy))}")
        Look.of(self.interpolation, self.fill)

    @property
    def draws(self) -> int:
        """Five numbers: which pair, then for each operation whether, and its sign."""
        return 5

    def program(self, numbers: NDArray[np.float64], size: Size) -> Program:
        table, look, steps = _table(self.policy), self._look, []
        pair = np.floor(numbers[:, 0] * len(table.p)).astype(np.int64)
        for place in range(2):
            whether, sign = numbers[:, 1 + 2 * place], _sign(numbers[:, 2 + 2 * place])
            chosen, strength = table.chosen[pair, place], table.strength[pair, place]
            step = _operations(_AUTO, chosen, strength, sign, bins=_AUTO_BINS, size=size, look=look)
            step[whether >= table.p[pair, place]] = 0
            steps.append(step)
        return joined(steps, len(numbers))


# AugMix: chains of operations, mixed with the picture itself.

_DEEPEST: Final = 3


@explains_fields
@dataclass(frozen=True, repr=False)
class AugMix(_Policy):
    """
    Mix each picture with ``mixture_width`` versions of it, each made by a chain of ``chain_depth`` operations.

    A depth below 1 means 1 to 3, drawn for each chain; ``severity`` of 10 limits the strengths, ``all_ops=False``
    leaves out brightness, contrast, saturation and sharpness. The picture's own share is drawn from Beta(alpha,
    alpha), the shares of the others from a Dirichlet distribution. ``interpolation`` and ``fill`` as in RandAugment.
    Draws one number for all shares; then for each chain its depth, and for each operation which one, its strength and
    its sign.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Interpolation = "bilinear"
    fill: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        Look.of(self.interpolation, self.fill)
        if not 1 <= self.severity <= _AUTO_BINS:
            raise ValueError(f"severity={self.severity!r}: expected a number from 1 to {_AUTO_BINS}")
        if self.mixture_width < 1 or not self.alpha > 0:
            raise ValueError(f"{self}: expected a mixture_width of at least 1, and an alpha above 0")

    @property
    def draws(self) -> int:
        """One number for all shares; then for each chain one, and three for each operation."""
        return 1 + self.mixture_width * (1 + 3 * self._depth)

    @property
    def _depth(self) -> int:
        return self.chain_depth if self.chain_depth > 0 else _DEEPEST

    def program(self, numbers: NDArray[np.float64], size: Size) -> Program:
        count, look = len(numbers), self._look
        space = _MIX if self.all_ops else _MIX_MOVES
        shares = self._shares(numbers[:, 0])
        steps = [program_of(count, (Step.BEGIN_MIX, shares[:, 0]))]
        chains = numbers[:, 1:].reshape(count, self.mixture_width, -1)
        for chain in range(self.mixture_width):
            own = chains[:, chain]
            depth = np.floor(own[:, 0] * self._depth) + 1 if self.chain_depth < 1 else np.full(count, self._depth)
            steps.append(program_of(count, (Step.BEGIN_CHAIN, 0)))
            for place in range(self._depth):
                which, strength, sign = own[:, 1 + 3 * place : 4 + 3 * place].T
                step = _operations(
                    space,
                    _place(which, space),
                    _level(strength, self.severity),
                    _sign(sign),
                    bins=_AUTO_BINS,
                    size=size,
                    look=look,
                )
                step[depth <= place] = 0
                steps.append(step)
            steps.append(program_of(count, (Step.ADD_TO_MIX, shares[:, 1 + chain])))
        steps.append(program_of(count, (Step.END_MIX, 0)))
        return joined(steps, count)

    def _shares(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the shares of the picture itself and of each chain, (n, 1 + width), by one number each."""
        shares = np.empty((len(numbers), 1 + self.mixture_width), np.float32)
        for place, number in enumerate(numbers.tolist()):
            # Not NumPy's newer generators: only this one promises never to change its numbers.
            drawn = np.random.RandomState(int(number * (1 << 32))).standard_gamma(self.alpha, 2 + self.mixture_width)
            own, others = drawn[0] / drawn[:2].sum(), drawn[2:] / drawn[2:].sum()
            shares[place] = [own, *(others.astype(np.float32) * np.float32(1 - own))]
        return shares.astype(np.float64)


def _place(numbers: NDArray[np.float64], space: _Space) -> NDArray[np.int64]:
    """Return places in the space, all equally likely."""
    return _level(numbers, len(space.kinds))


def _level(numbers: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    return np.floor(numbers * count).astype(np.int64)


def _sign(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(numbers < 0.5, 1.0, -1.0)


def _check_bins(bins: int) -> None:
    if bins < 2:
        raise ValueError(f"num_magnitude_bins={bins!r}: expected a number of at least 2")
