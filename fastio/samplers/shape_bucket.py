"""ShapeBucketSampler: batches of pictures of similar proportions, and the shape that each batch is brought to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
      and other batches, as with LengthBucketSampler; ``sizes``, ``shapes``, ``seed`` and ``shuffle`` must stay.

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
        return begun == self._rule()


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
        ratios = np.unique(of_pairs)
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

_DIVIDING = ("batch_size", "pixels_per_batch", "world_size", "uneven", "drop_last")


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """How ShapeBucketSampler divides pictures; the names are its options. Raises ValueError for impossible numbers."""

    shapes: Shapes
    batch_size: int | None
    pixels_per_batch: int | None
    world_size: int
    uneven: Uneven
    drop_last: bool

    def __post_init__(self) -> None:
        if (self.batch_size is None) == (self.pixels_per_batch is None):
            raise ValueError(
                f"batch_size={self.batch_size}, pixels_per_batch={self.pixels_per_batch}: expected exactly one of the "
                "two"
            )
        for name in ("batch_size", "pixels_per_batch", "world_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), "1 or more", least=1)
        Division(0, 1, self.world_size, self.uneven, self.drop_last)  # refuses unknown values
        large = max(self.shapes.pairs, key=math.prod)
        if self.pixels_per_batch is not None and math.prod(large) > self.pixels_per_batch:
            raise ValueError(
                f"pixels_per_batch={self.pixels_per_batch}: one picture of the shape {large} has {math.prod(large)} "
                "pixels: raise it, or leave out that shape"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values; shapes are no option of the division: they must stay."""
        return plain({name: getattr(self, name) for name in _DIVIDING})

    def batch_sizes(self) -> list[int]:
        """Return how many samples a batch of each shape has."""
        if self.batch_size is not None:
            return [self.batch_size] * len(self.shapes.pairs)
        assert self.pixels_per_batch is not None
        return [self.pixels_per_batch // math.prod(pair) for pair in self.shapes.pairs]

    def order(self, buckets: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> ShapeOrder:
        """Cut ``samples`` (None: all) into steps: of each shape as many full ones as there are, then a short one."""
        counts = np.bincount(buckets if samples is None else buckets[samples], minlength=len(self.shapes.pairs))
        divisions, cuts = [], [np.zeros(1, np.int64)]
        start = 0
        # As they are sorted below, the last shape comes first.
        for count, size in zip(counts[::-1].tolist(), self.batch_sizes()[::-1], strict=True):
            division = Division(count, size, self.world_size, self.uneven, self.drop_last)
            ends = np.arange(1, division.full_steps + 1, dtype=np.int64) * (size * self.world_size)
            has_rest = count > division.full_steps * size * self.world_size
            cuts.append(start + (np.append(ends, count) if has_rest else ends))
            divisions.append(division)
            start += count
        total = int(counts.sum())
        # Behind the order, there is room for the short steps as they are dealt: with samples repeated or left out.
        order = np.empty(total + sum(_rest(division) * self.world_size for division in divisions), np.int64)
        if total:
            _native.bucket_steps(
                buckets,
                order[:total],
                samples=samples,
                window=total,
                batch_size=total,
                max_tokens=0,
                multiple=1,
                world_size=1,
                seed=draws.seed,
                epoch=draws.epoch,
            )
        return ShapeOrder.of(order, np.concatenate(cuts), divisions, draws, len(buckets))


def _rest(division: Division) -> int:
    """Return the samples that each rank gets of a short step."""
    return division.samples - division.full_steps * division.batch_size


@dataclass(frozen=True, slots=True)
class ShapeOrder:
    """
    Samples in steps of one shape each: step k is ``order[cuts[k]:cuts[k + 1]]``. ``numbers`` are those that come, in
    their order, and ``dealt`` where each lies as it is shared out: a short step, of ``shorts``, behind all others.
    """

    order: NDArray[np.int64]
    cuts: NDArray[np.int64]
    numbers: NDArray[np.int64]
    dealt: NDArray[np.int64]
    shorts: Mapping[int, Division]  # by number as dealt
    divisions: Sequence[Division]
    planned: int  # steps of the cuts, before those behind
    count: int  # samples are numbers below this

    @classmethod
    def of(
        cls, order: NDArray[np.int64], cuts: NDArray[np.int64], divisions: Sequence[Division], draws: Draws, count: int
    ) -> ShapeOrder:
        """Bring the steps into their order, and write short ones as they are dealt."""
        steps = len(cuts) - 1
        place, shorts, ends = np.arange(steps, dtype=np.int64), dict[int, Division](), [int(cuts[-1])]
        comes = np.ones(steps, np.bool_)
        number = 0
        for division in divisions:
            number += division.full_steps
            if division.full_steps * division.batch_size * division.world_size == division.count:
                continue
            size = _rest(division) * division.world_size
            comes[number] = size > 0
            if size:
                place[number] = steps + len(shorts)
                shorts[steps + len(shorts)] = division
                order[ends[-1] : ends[-1] + size] = np.resize(order[cuts[number] : cuts[number + 1]], size)
                ends.append(ends[-1] + size)
            number += 1
        numbers = np.flatnonzero(comes)[shuffled(int(comes.sum()), draws)]
        every = np.concatenate((cuts, np.array(ends[1:], np.int64)))
        return cls(order, every, numbers, place[numbers], shorts, divisions, steps, count)

    def _ends(self) -> NDArray[np.int64]:
        """Return how many samples are consumed before each step and after the last, those left out among them."""
        return np.concatenate(([0], np.cumsum(np.diff(self.cuts)[self.numbers], dtype=np.int64)))

    def steps(self, rule: ShapeRule, consumed: int) -> NDArray[np.int64]:
        """Return where the steps that are left end. See ``PlannedOrder``."""
        ends = self._ends()
        return ends[place_in(ends, consumed) :]

    def left(self, consumed: int) -> NDArray[np.int64]:
        """Return the samples, ascending, that come after so many; they overwrite ``order``."""
        steps = place_in(self._ends(), consumed)
        if steps == len(self.numbers):  # what short steps leave out does not come in this epoch
            return self.order[:0]
        own, had = self.cuts[: self.planned + 1], self.numbers[:steps]
        order = self.order[: int(own[-1])]
        short = np.flatnonzero(self.dealt[:steps] >= self.planned)
        left_out = [self._left_out(int(self.dealt[step]), int(had[step])) for step in short]
        left = order[: _native.left_over(order, own, had, self.count)]
        return np.sort(np.concatenate((left, *left_out))) if sum(map(len, left_out)) else left

    def _left_out(self, place: int, number: int) -> NDArray[np.int64]:
        """Return the samples of a short step that no rank gets."""
        dealt = int(self.cuts[place + 1] - self.cuts[place])
        return self.order[int(self.cuts[number]) + dealt : int(self.cuts[number + 1])].copy()

    def batches(self, rule: ShapeRule, rank: int, ends: NDArray[np.int64]) -> Batches:
        """Return one rank's batches of the steps with these ends."""
        world_size = self.divisions[0].world_size
        sizes = np.diff(self.cuts)[self.dealt] // world_size
        cuts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        mine = np.empty(int(cuts[-1]), np.int64)
        _native.deal_steps(self.order, self.cuts, self.dealt, rank, world_size, mine)
        padding = [
            cuts[position] + self._padding(self.shorts[int(self.dealt[position])], rank)
            for position in np.flatnonzero(self.dealt >= self.planned)
        ]
        consumed = len(self.numbers) + 1 - len(ends)
        to_come = [self.shorts[step] for step in self.dealt[consumed:].tolist() if step in self.shorts]
        repeated, dropped = sum(each.repeated for each in to_come), sum(each.dropped for each in self.divisions)
        every = Batches(mine, cuts, repeated, dropped, padding=np.concatenate([np.empty(0, np.int64), *padding]))
        return every.after(consumed)

    @staticmethod
    def _padding(division: Division, rank: int) -> NDArray[np.int64]:
        """Return which of a rank's samples of a short step repeat others."""
        own = division.count - division.full_steps * division.batch_size * division.world_size
        places = np.arange(_rest(division), dtype=np.int64)
        return places[places * division.world_size + rank >= own]
