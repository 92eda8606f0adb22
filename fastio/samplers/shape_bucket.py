"""ShapeBucketSampler: batches of pictures of similar proportions, and the shape that each batch is brought to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import Draws, PlannedSampler, place_in, shuffled
from fastio.samplers.position import as_array, plain, whole
from fastio.samplers.share import Ranks
from fastio.types.options import explains_names
from fastio.types.spans import distinct

__all__ = ["ShapeBucketSampler", "ShapeReport", "Shapes"]

_MOST_SIDE = 1 << 20  # pixels, as of any picture
_PART = 1 << 20  # pictures looked at together, so that temporary arrays stay in the cache


class ShapeBucketSampler(PlannedSampler):
    """
    Groups pictures of similar proportions into batches, and says to which height and width each batch is brought::

        sampler = ShapeBucketSampler(dataset.sizes(), pixels=1024**2, multiple_of=64, batch_size=8)
        FastLoader(dataset, batch_sampler=sampler, transforms=[ResizeToBucket(sampler, crop="random")])

    Each picture belongs to the shape whose proportions are nearest to its own, which crops away least of it; that
    depends on its size alone. Each batch has pictures of one shape, and batches of all shapes come in random order.

    * ``sizes``: height and width of each picture, integers ``(n, 2)``, as ``dataset.sizes()``. Zeros are pictures with
      bad headers.
    * ``shapes``: pairs of height and width. Of several with the same proportions, a picture gets the largest that it
      covers without being enlarged, or else the smallest.
    * ``pixels``: instead, all shapes whose sides are multiples of ``multiple_of``, whose proportions are at most
      ``max_ratio`` (long side by short side), and which for their long side have as many pixels as fit into ``pixels``.
      1024**2, 64 and 4 are those of SDXL.
    * ``batch_size``: samples per batch. Instead, ``pixels_per_batch`` limits a batch's pixels: of small shapes, more
      samples are in a batch.
    * A step is one batch per rank, all of one shape and equally many samples. What does not fill a step of its shape
      is a short step; ``uneven`` says how it is divided equally: "pad" repeats samples of that step, "drop" leaves some
      out, "repeat" fills its batches. ``drop_last`` leaves out short steps. ``plan(epoch)`` counts what is repeated
      and dropped.
    * ``report()`` says how many pictures each shape has, and how much of them is cropped away.
    * ``rank``, ``world_size`` and ``ranks`` as in FastLoader. An epoch can be continued with another number of ranks
      and other batches: pictures of each shape come in the order that was planned where the epoch began, and a step
      when its first one was planned to come. ``sizes``, ``shapes``, ``seed`` and ``shuffle`` must stay.
    * ``step_size``: for how many samples a step (with ``pixels_per_batch``, how many pixels) an epoch is planned,
      whatever ranks begin it: any number of them then has one order, from the start. The default are those of a step of
      the first ranks.

    Raises ValueError for options or sizes that mean nothing, and for a shape that alone exceeds ``pixels_per_batch``.
    """

    @explains_names(groups={"ranks": Ranks})
    def __init__(  # noqa: PLR0913 - named like those of LengthBucketSampler
        self,
        sizes: ArrayLike,
        *,
        shapes: Sequence[Sequence[int]] | None = None,
        pixels: int | None = None,
        multiple_of: int = 64,
        max_ratio: float = 4.0,
        batch_size: int | None = None,
        pixels_per_batch: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: Ranks | None = None,
        uneven: Uneven = "pad",
        step_size: int | None = None,
    ) -> None:
        if (shapes is None) == (pixels is None):
            raise ValueError(f"shapes={shapes}, pixels={pixels}: expected exactly one of the two")
        self._sizes = _as_sizes(sizes)
        self._shapes = Shapes.of(shapes) if pixels is None else Shapes.within(pixels, multiple_of, max_ratio)
        super().__init__(self._shapes.nearest(self._sizes[:, 0], self._sizes[:, 1]), Ranks.of(ranks, rank, world_size))
        self.batch_size = batch_size
        self.pixels_per_batch = pixels_per_batch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.uneven: Uneven = uneven
        self.step_size = step_size
        self._rule()
        self._close(ShapeBucketSampler)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Height and width of each shape; ``ResizeToBucket`` takes them, too."""
        return self._shapes.pairs

    @property
    def buckets(self) -> NDArray[np.int32]:
        """For each picture, the position in ``shapes`` of the one that it is brought to, ``(n,)``."""
        return self._lengths

    def report(self) -> ShapeReport:
        """Return how many pictures each shape has, and what cropping and enlarging does to them."""
        return ShapeReport.of(self._shapes, self._sizes, self._lengths)

    def configuration(self) -> dict[str, Any]:
        """Return what must be equal for a history to mean the same samples."""
        own = super().configuration()
        return {**own, "buckets_crc32": own.pop("lengths_crc32"), "shapes": [list(pair) for pair in self.shapes]}

    def _rule(self) -> ShapeRule:
        return self._rule_of({name: getattr(self, name) for name in _DIVIDING})

    def _rule_of(self, options: Mapping[str, Any]) -> ShapeRule:
        return ShapeRule(shapes=self._shapes, **options)

    def _goes_on(self, begun: ShapeRule) -> bool:
        return True

    def _checked_count(self, name: str, count: Any) -> Any:
        if not isinstance(count, list):  # states of before counted planned steps
            return super()._checked_count(name, count)
        return [whole(name, each, "0 or more of each shape in the state", least=0) for each in count]


def _as_sizes(sizes: ArrayLike) -> NDArray[np.int64]:
    array = as_array(sizes)
    if array.ndim != 2 or array.shape[1] != 2 or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(
            f"sizes are {array.dtype} {array.shape}: expected integers (n, 2), the height and the width of each "
            "picture, as dataset.sizes() gives them"
        )
    if array.size and not (array.min() >= 0 and array.max() <= _MOST_SIDE):
        raise ValueError(f"sizes go from {array.min()} to {array.max()}: expected 0 to {_MOST_SIDE} pixels")
    return array.astype(np.int64, copy=False)


# Shapes: which of some shapes a picture is brought to. Sampler and transform both ask here.


@runtime_checkable
class HasShapes(Protocol):
    """What knows shapes: a ShapeBucketSampler."""

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Height and width of each."""
        ...


@dataclass(frozen=True)
class Shapes:
    """
    Shapes as ``pairs`` of height and width, and which of them is nearest to a picture: a pure function of its size.

    Raises ValueError for pairs that are no sizes, for none, and for one that comes twice.
    """

    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("shapes is empty: expected pairs of height and width")
        twice = {pair for pair in self.pairs if self.pairs.count(pair) > 1}
        if twice:
            raise ValueError(f"shapes has {min(twice)} twice: expected each once")

    @classmethod
    def of(cls, shapes: object) -> Shapes:
        """Return shapes from pairs as users write them, or from a ShapeBucketSampler."""
        if isinstance(shapes, HasShapes):
            return cls(tuple(shapes.shapes))
        if isinstance(shapes, (str, bytes)) or not isinstance(shapes, Sequence):
            raise ValueError(f"shapes={shapes!r}: expected pairs of height and width, such as [(512, 768), (768, 512)]")
        pairs = []
        for shape in shapes:
            if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence) or len(shape) != 2:
                raise ValueError(f"shapes has {shape!r}: expected a pair of height and width, such as (512, 768)")
            height, width = (whole("shapes", side, f"sides of 1 to {_MOST_SIDE}", least=1) for side in shape)
            if max(height, width) > _MOST_SIDE:
                raise ValueError(f"shapes has {shape!r}: expected sides of 1 to {_MOST_SIDE}")
            pairs.append((height, width))
        return cls(tuple(pairs))

    @classmethod
    def within(cls, pixels: int, multiple_of: int, max_ratio: float) -> Shapes:
        """
        Return the shapes that ``pixels``, ``multiple_of`` and ``max_ratio`` of a ShapeBucketSampler mean, tall first.

        >>> Shapes.within(64 * 64, 16, 2.0).pairs
        ((80, 48), (64, 64), (48, 80))
        """
        step = whole("multiple_of", multiple_of, "1 or more", least=1)
        most = whole(
            "pixels", pixels, f"a whole number of at least multiple_of squared, {step * step}", least=step * step
        )
        if not isinstance(max_ratio, Real) or not 1 <= max_ratio < math.inf:
            raise ValueError(f"max_ratio={max_ratio!r}: expected a number from 1, the long side by the short one")
        longest = min(math.isqrt(int(most * max_ratio)), _MOST_SIDE)
        pairs = set()
        for side in range(math.isqrt(most) // step * step, longest + 1, step):
            other = min(side, most // side // step * step)
            if side <= max_ratio * other:
                pairs |= {(side, other), (other, side)}
        return cls(tuple(sorted(pairs, key=lambda pair: (-pair[0] / pair[1], pair))))

    def nearest(self, height: NDArray[np.int64], width: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the position in ``pairs`` of the shape for each picture of these sizes, ``(n,)`` each."""
        chosen = np.empty(len(height), np.int32)
        for first in range(0, len(height), _PART):
            part = slice(first, first + _PART)
            self._choose(height[part], width[part], chosen[part])
        return chosen

    def _choose(self, height: NDArray[np.int64], width: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        ratios, by_ratio = self._by_ratio()
        borders = np.sqrt(ratios[:-1] * ratios[1:])  # between two of these, both lose the same
        places = np.searchsorted(borders, _ratio(height, width), side="right")
        out[:] = np.array([positions[0] for positions in by_ratio], np.int32)[places]
        for place, positions in enumerate(by_ratio):
            for position in positions[1:]:  # ascending in size
                is_covered = (height >= self.pairs[position][0]) & (width >= self.pairs[position][1])
                out[(places == place) & is_covered] = position

    def _by_ratio(self) -> tuple[NDArray[np.float64], list[list[int]]]:
        """Return the proportions, height by width, ascending, and the positions of the shapes of each, by size."""
        of_pairs = np.array([height / width for height, width in self.pairs])
        ratios = distinct(of_pairs)
        by_size = sorted(range(len(self.pairs)), key=lambda position: self.pairs[position])
        return ratios, [[position for position in by_size if of_pairs[position] == ratio] for ratio in ratios]

    def kept(self, height: NDArray[np.int64], width: NDArray[np.int64], chosen: NDArray[np.int32]) -> Any:
        """Return the share of each picture's pixels that is left when it is cropped to its shape, ``(n,)`` float64."""
        own = _ratio(height, width)
        shape = np.array([height / width for height, width in self.pairs])[chosen]
        return np.minimum(own / shape, shape / own)


def _ratio(height: NDArray[np.int64], width: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return height by width; 1 for pictures with bad headers, which have zeros."""
    if height.all() and width.all():
        return height / width
    ratio: NDArray[np.float64] = np.where((height > 0) & (width > 0), height / np.maximum(width, 1), 1.0)
    return ratio


# ShapeReport: what cropping to shapes costs.


@dataclass(frozen=True, slots=True)
class ShapeReport:
    """
    What becomes of pictures that are brought to shapes; each array has one entry per shape, in the order of ``shapes``.

    ``lost`` is the share of the pixels that is cropped away, the mean over the pictures of the shape; ``enlarged`` the
    share of the pictures that are smaller than the shape, in height or width. Both are 0 for a shape without pictures.
    ``samples`` counts the pictures. ``print(report)`` shows a table.
    """

    shapes: tuple[tuple[int, int], ...]
    samples: NDArray[np.int64]
    lost: NDArray[np.float64]
    enlarged: NDArray[np.float64]

    @classmethod
    def of(cls, shapes: Shapes, sizes: NDArray[np.int64], chosen: NDArray[np.int32]) -> ShapeReport:
        """Return the report on pictures of these sizes, each brought to the shape chosen for it."""
        count = len(shapes.pairs)
        height, width = sizes[:, 0], sizes[:, 1]
        is_known = (height > 0) & (width > 0)
        kept = np.where(is_known, shapes.kept(height, width, chosen), 1.0)
        sides = np.array(shapes.pairs, np.int64)[chosen]
        is_small = is_known & (sizes < sides).any(axis=1)
        samples = np.bincount(chosen, minlength=count)
        most = np.maximum(samples, 1)
        lost = np.bincount(chosen, 1.0 - kept, minlength=count) / most
        return cls(shapes.pairs, samples, lost, np.bincount(chosen, is_small, minlength=count) / most)

    @property
    def total_lost(self) -> float:
        """The share of the pixels that is cropped away, the mean over all pictures."""
        return float((self.lost * self.samples).sum() / max(1, self.samples.sum()))

    @property
    def total_enlarged(self) -> float:
        """The share of all pictures that are smaller than their shape."""
        return float((self.enlarged * self.samples).sum() / max(1, self.samples.sum()))

    def __str__(self) -> str:
        rows = zip(self.shapes, self.samples.tolist(), self.lost.tolist(), self.enlarged.tolist(), strict=True)
        lines = [
            f"{f'{height}x{width}':>11} {count:>9,} {lost:>8.1%} {enlarged:>9.1%}"
            for (height, width), count, lost, enlarged in rows
        ]
        total = f"{'all':>11} {int(self.samples.sum()):>9,} {self.total_lost:>8.1%} {self.total_enlarged:>9.1%}"
        return "\n".join([f"{'shape':>11} {'pictures':>9} {'lost':>8} {'enlarged':>9}", *lines, total])


# ShapeRule, ShapeOrder: pictures cut into steps of one shape each.


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """How ShapeBucketSampler divides pictures; the names are its options. Raises ValueError for impossible numbers."""

    shapes: Shapes
    batch_size: int | None
    pixels_per_batch: int | None
    world_size: int
    uneven: Uneven
    drop_last: bool
    step_size: int | None = None

    def __post_init__(self) -> None:
        if (self.batch_size is None) == (self.pixels_per_batch is None):
            raise ValueError(
                f"batch_size={self.batch_size}, pixels_per_batch={self.pixels_per_batch}: expected exactly one of the "
                "two"
            )
        for name in ("batch_size", "pixels_per_batch", "world_size", "step_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), "1 or more", least=1)
        Division(0, 1, self.world_size, self.uneven, self.drop_last)  # refuses unknown values
        large = max(self.shapes.pairs, key=math.prod)
        for name in ("pixels_per_batch", "step_size") if self.pixels_per_batch is not None else ():
            most = getattr(self, name)
            if most is not None and math.prod(large) > most:
                raise ValueError(
                    f"{name}={most}: one picture of the shape {large} has {math.prod(large)} pixels: raise it, or "
                    "leave out that shape"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values; shapes are no option of the division: they must stay."""
        options = {name: getattr(self, name) for name in _DIVIDING}
        return plain({name: options[name] for name in options if name != "step_size" or self.step_size is not None})

    def planning(self) -> ShapeRule:
        """Return the rule whose steps are planned: this one, unless ``step_size`` says how large they are."""
        if self.step_size is None:
            return self
        alone = replace(self, world_size=1, step_size=None)
        if self.pixels_per_batch is None:
            return replace(alone, batch_size=self.step_size)
        return replace(alone, pixels_per_batch=self.step_size)

    def divisions(self, counts: NDArray[np.int64]) -> list[Division]:
        """Return how so many pictures of each shape are divided."""
        return [
            Division(count, self._batch_size(pair), self.world_size, self.uneven, self.drop_last)
            for count, pair in zip(counts.tolist(), self.shapes.pairs, strict=True)
        ]

    def _batch_size(self, pair: tuple[int, int]) -> int:
        return self.batch_size or (self.pixels_per_batch or 0) // math.prod(pair)

    def order(self, buckets: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> ShapeOrder:
        """Cut ``samples`` (None: all) into steps: of each shape as many full ones as there are, then a short one."""
        if self.step_size is not None:
            return self.planning().order(buckets, samples, draws)
        counts = np.bincount(buckets if samples is None else buckets[samples], minlength=len(self.shapes.pairs))
        order = np.empty(int(counts.sum()), np.int64)
        if len(order):
            _native.bucket_steps(
                buckets,
                order,
                samples=samples,
                window=len(order),
                batch_size=len(order),
                max_tokens=0,
                multiple=1,
                world_size=1,
                seed=draws.seed,
                epoch=draws.epoch,
            )
        return ShapeOrder.of(order, self.divisions(counts), draws, len(buckets))


_DIVIDING = tuple(name for name in ShapeRule.__slots__ if name != "shapes")


def _rest(division: Division) -> int:
    """Return the samples that each rank gets of a short step, repeated ones among them."""
    return division.samples - division.full_steps * division.batch_size


def _sizes(division: Division, before: int) -> NDArray[np.int64]:
    """Return how many samples the steps of a shape take: the short one, perhaps none, after ``before`` others."""
    sizes = np.full(division.full_steps + 1, division.batch_size * division.world_size, np.int64)
    sizes[before] = min(_short(division), _rest(division) * division.world_size)
    return sizes


def _short(division: Division) -> int:
    """Return the samples of a short step, those left out among them."""
    return division.count - division.full_steps * division.batch_size * division.world_size


def _deal(
    samples: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    out: NDArray[np.int64],
    rank: int = 0,
    world_size: int = 1,
) -> None:
    """Write a rank's samples of such steps to ``out``: every ``world_size``-th of each."""
    spans = np.stack((starts, starts + sizes), axis=1).reshape(-1)
    _native.deal_steps(samples, spans, 2 * np.arange(len(starts)), rank, world_size, out)


@dataclass(frozen=True, slots=True)
class ShapeOrder:
    """
    Samples in the order in which they come, shape by shape: those of shape k are ``queues[bounds[k]:bounds[k + 1]]``,
    and steps of any ranks take the first that are left. What short steps leave out stands at the ends.

    ``starts`` are where planned steps lie in the queues, and ``turns`` when they come; those from ``len(ends) - 1`` on
    are left out. ``shorts`` are where each shape has its short step. What is consumed is a list: how many samples of
    each shape. States of before say how many samples of planned steps came, those left out among them: ``ends``.
    """

    queues: NDArray[np.int64]
    bounds: NDArray[np.int64]
    starts: NDArray[np.int64]
    turns: NDArray[np.int64]
    shorts: NDArray[np.int64]
    ends: NDArray[np.int64]
    count: int  # samples are numbers below this

    @classmethod
    def of(cls, order: NDArray[np.int64], divisions: Sequence[Division], draws: Draws, count: int) -> ShapeOrder:
        """Bring the steps into their order. In ``order``, the last shape comes first, and its short step last."""
        steps = np.array([division.full_steps + 1 for division in divisions[::-1]])
        shape = np.repeat(np.arange(len(divisions))[::-1], steps)
        is_short = np.zeros(len(shape), np.bool_)
        is_short[np.cumsum(steps) - 1] = True
        comes = np.concatenate([_sizes(division, division.full_steps) for division in divisions[::-1]])
        own = comes.copy()
        own[is_short] = [_short(division) for division in divisions[::-1]]
        begin = np.cumsum(own) - own

        numbers = np.flatnonzero(comes)
        numbers = numbers[shuffled(len(numbers), draws)]
        left_out = np.flatnonzero(own > comes)
        every = np.concatenate((numbers, left_out))
        turns = np.argsort(shape[every], kind="stable")
        places = np.concatenate((begin[numbers], begin[left_out] + comes[left_out]))[turns]
        sizes = np.concatenate((comes[numbers], (own - comes)[left_out]))[turns]
        queues = np.empty_like(order)
        _deal(order, places, sizes, queues)

        bounds = np.concatenate(([0], np.cumsum([division.count for division in divisions], dtype=np.int64)))
        starts, shorts = np.cumsum(sizes) - sizes, bounds[1:].copy()
        at = np.flatnonzero(is_short[every[turns]] & (turns < len(numbers)))
        shorts[shape[every[turns[at]]]] = starts[at]
        ends = np.concatenate(([0], np.cumsum(own[numbers])))
        return cls(queues, bounds, starts, turns, shorts, ends, count)

    def steps(self, rule: ShapeRule, consumed: int | list[int]) -> ShapeSteps:
        """
        Cut what is left of each shape into steps, which come when the first sample of each was planned to come.

        A short step comes where it was planned to come, or at the end of its shape.
        """
        had = self._had(consumed)
        total = np.diff(self.bounds)
        divisions, first = rule.divisions(total - had), self.bounds[:-1] + had
        sizes, each, starts = [], [], []
        for division, start, short in zip(divisions, first.tolist(), self.shorts.tolist(), strict=True):
            full = division.full_steps
            before = full if short < start else (short - start) // (division.batch_size * division.world_size)
            sizes.append(_sizes(division, min(full, before)))
            each.append(np.full(full + 1, division.batch_size))
            each[-1][min(full, before)] = _rest(division)
            starts.append(start + np.cumsum(sizes[-1]) - sizes[-1])
        cut = ShapeSteps(
            had,
            total,
            np.repeat(np.arange(len(sizes)), list(map(len, sizes))),
            *map(np.concatenate, (starts, sizes, each)),
        )
        comes = np.flatnonzero(cut.sizes)
        turns = self.turns[np.searchsorted(self.starts, cut.starts[comes], side="right") - 1]
        return cut.taken(comes[np.lexsort((cut.starts[comes], turns))])

    def _had(self, consumed: int | list[int]) -> NDArray[np.int64]:
        """Return how many samples of each shape are consumed. Raises ValueError if there are fewer."""
        total = np.diff(self.bounds)
        if isinstance(consumed, list):
            had = np.array(consumed, np.int64)
            if len(had) != len(total) or (had > total).any() or not had.any():
                raise ValueError(f"samples={consumed}: expected 0 to {total.tolist()} in the state, and not only zeros")
            return had
        steps = place_in(self.ends, consumed)
        shapes = np.searchsorted(self.bounds, self.starts, side="right") - 1
        sizes = np.diff(np.append(self.starts, len(self.queues)))
        return _by_shape(shapes[self.turns < steps], sizes[self.turns < steps], len(total))

    def left(self, consumed: int | list[int]) -> NDArray[np.int64]:
        """Return the samples, ascending, that come after so many; they overwrite ``queues``."""
        cuts = np.stack((self.bounds[:-1], self.bounds[:-1] + self._had(consumed)), axis=1).reshape(-1)
        return self.queues[: _native.left_over(self.queues, cuts, np.arange(0, len(cuts), 2), self.count)]

    def batches(self, rule: ShapeRule, rank: int, ends: ShapeSteps) -> Batches:
        """Return one rank's batches of the steps that ``steps`` returned."""
        world_size, steps = rule.world_size, ends
        own = (steps.sizes - rank + world_size - 1) // world_size
        mine = np.empty(int(own.sum()), np.int64)
        _deal(self.queues, steps.starts, steps.sizes, mine, rank, world_size)
        cuts = np.concatenate(([0], np.cumsum(steps.each)))
        again, padding = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        short = np.flatnonzero(steps.each > own)
        for step in short.tolist():
            places = np.arange(own[step], steps.each[step])
            again.append(self.queues[steps.starts[step] + (rank + places * world_size) % steps.sizes[step]])
            padding.append(cuts[step] + places)
        if len(short):
            mine = np.insert(mine, np.repeat(np.cumsum(own)[short], list(map(len, again[1:]))), np.concatenate(again))
        comes = int(steps.sizes.sum())
        return Batches(
            mine,
            cuts,
            int(steps.each.sum()) * world_size - comes,
            int((steps.total - steps.had).sum()) - comes,
            padding=np.concatenate(padding),
        )


def _by_shape(shapes: NDArray[np.int64], sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.bincount(shapes, sizes, minlength=count).astype(np.int64)  # doubles hold numbers of samples exactly


@dataclass(frozen=True, slots=True)
class ShapeSteps:
    """
    Steps in the order in which they come: the shape of each, where its samples start in the queues, how many these are,
    and how many each rank gets. ``had`` and ``total`` count the samples of each shape, consumed before and of all.

    ``steps[k]`` is what is consumed before step k.
    """

    had: NDArray[np.int64]
    total: NDArray[np.int64]
    shapes: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    each: NDArray[np.int64]

    def taken(self, numbers: NDArray[np.int64]) -> ShapeSteps:
        """Return these steps."""
        some = (values[numbers] for values in (self.shapes, self.starts, self.sizes, self.each))
        return ShapeSteps(self.had, self.total, *some)

    def __getitem__(self, step: int) -> list[int]:
        return list((self.had + _by_shape(self.shapes[:step], self.sizes[:step], len(self.had))).tolist())
