"""LengthBucketSampler: batches of samples with similar lengths, so that little is padded."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import Draws, PlannedSampler, check_consumed, even_steps, shuffled
from fastio.samplers.position import plain, whole
from fastio.samplers.share import Ranks
from fastio.types.options import explains_names

__all__ = ["LengthBucketSampler"]

_WINDOW_STEPS = 1024


class LengthBucketSampler(PlannedSampler):
    """
    Groups samples of similar length into batches, so that little is padded::

        sampler = LengthBucketSampler(dataset.column("length"), batch_size=64)
        DataLoader(dataset, batch_sampler=sampler, collate_fn=PadCollate())
        FastLoader(dataset, batch_sampler=sampler, collate="pad")

    Each window of an epoch's random order is sorted by length and cut into batches, which come in random order.

    * ``lengths``: one integer for each sample, ``(n,)``, as ``dataset.lengths`` or ``dataset.column("length")``.
    * ``batch_size``: samples per batch. Instead, ``max_tokens`` limits a batch's tokens with padding: the longest
      sample, rounded up to ``pad_to_multiple``, times the samples.
    * ``window``: how many samples are sorted together. A larger window pads less; in a smaller one, a sample meets more
      varied neighbours. The default is 1024 batches of every rank.
    * A step is one batch per rank. All ranks get the same number of samples, dealt in turn from one run of the sorted
      window, so the longest sample of each rank is among the ``world_size`` longest of the step.
    * ``rank``, ``world_size`` and ``ranks`` as in FastLoader.
    * Each sample comes exactly once per epoch. ``uneven`` says what happens to the rest in the last step: "pad" repeats
      samples of that step, "drop" leaves some out, "repeat" fills its batches. ``drop_last`` leaves out a last step
      with short batches. ``plan(epoch)`` counts what is repeated and dropped.
    * All ranks compute the same plan from lengths, options, seed and epoch. With ``max_tokens`` and several windows,
      the number of batches may differ between epochs.
    * An epoch can be continued with other options and another number of ranks: ``state_dict`` says what all ranks
      have had, and the others come in the order that was planned where the epoch began. Steps of another size, unless
      several of them make one of those, are then cut from two buckets, which pads more. Another ``window`` than that of
      the epoch's beginning buckets the rest anew. ``lengths``, ``seed`` and ``shuffle`` must stay.
    * ``step_size``: how many samples make a bucket (with ``max_tokens``, how many tokens), whatever ranks begin the
      epoch: any number of them then has one order, from the start. The default are those of a step of the first ranks.

    accelerate and transformers share out the batches of a DataLoader themselves when they run several processes: pass
    ``rank=0, world_size=1``. Under Lightning, use ``Trainer(use_distributed_sampler=False)``. Otherwise the first
    batch raises ValueError. A FastLoader from ``fastio.integrations`` needs neither.

    Raises ValueError for options or lengths that mean nothing, and for a sample that alone exceeds ``max_tokens``.
    """

    @explains_names(groups={"ranks": Ranks})
    def __init__(  # noqa: PLR0913 - the names of torch's samplers, which its users know
        self,
        lengths: ArrayLike,
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        window: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: Ranks | None = None,
        pad_to_multiple: int = 1,
        uneven: Uneven = "pad",
        step_size: int | None = None,
    ) -> None:
        super().__init__(lengths, Ranks.of(ranks, rank, world_size))
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.pad_to_multiple = pad_to_multiple
        self.uneven: Uneven = uneven
        self.step_size = step_size
        self._has_own_window = window is not None
        self.window = 1 if window is None else window
        self._rule().check_longest(self._lengths)
        if window is None:
            self.window = self._default_window()
        self._close(LengthBucketSampler)

    def _take(self, ranks: Ranks) -> None:
        super()._take(ranks)
        if "_built" in self.__dict__ and not self._has_own_window:
            self.__dict__["window"] = self._default_window()

    def _default_window(self) -> int:
        rule = self._rule().planning()
        batch = rule.batch_size
        if batch is None:
            assert rule.max_tokens is not None
            mean = float(self._lengths.mean()) if len(self._lengths) else 1.0
            batch = int(rule.max_tokens / max(mean, 1.0)) + 1
        return int(_WINDOW_STEPS * batch * rule.world_size)

    def _rule(self) -> BucketRule:
        return self._rule_of({name: getattr(self, name) for name in BucketRule.__slots__})

    def _rule_of(self, options: Mapping[str, Any]) -> BucketRule:
        return BucketRule(**options)

    def _goes_on(self, begun: BucketRule) -> bool:
        return not self._has_own_window or begun.window == self.window


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How LengthBucketSampler divides samples; the names are its options. Raises ValueError for impossible numbers."""

    batch_size: int | None
    max_tokens: int | None
    window: int
    pad_to_multiple: int
    world_size: int
    uneven: Uneven
    drop_last: bool
    step_size: int | None = None

    def __post_init__(self) -> None:
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ValueError(
                f"batch_size={self.batch_size}, max_tokens={self.max_tokens}: expected exactly one of the two"
            )
        for name in ("batch_size", "max_tokens", "window", "pad_to_multiple", "world_size", "step_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), "1 or more", least=1)
        Division(0, 1, self.world_size, self.uneven, self.drop_last)  # refuses unknown values

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values, as versions before ``step_size`` did where there is none."""
        options = plain(asdict(self))
        return {name: options[name] for name in options if name != "step_size" or self.step_size is not None}

    def planning(self) -> BucketRule:
        """Return the rule whose steps are the buckets: this one, unless ``step_size`` says how large they are."""
        if self.step_size is None:
            return self
        alone = replace(self, world_size=1, step_size=None)
        if self.max_tokens is None:
            return replace(alone, batch_size=self.step_size)
        return replace(alone, max_tokens=self.step_size)

    def check_longest(self, lengths: NDArray[np.int32]) -> None:
        """Raise ValueError if a sample has more tokens than a batch may have."""
        if self.max_tokens is None or len(lengths) == 0:
            return
        index = int(lengths.argmax())
        padded = self._padded(int(lengths[index]))
        if padded > self.max_tokens:
            raise ValueError(
                f"max_tokens={self.max_tokens}: sample {index} alone has {lengths[index]} tokens, {padded} "
                "with padding: raise max_tokens, or cut texts when packing (fastio pack --max-length)"
            )

    def most(self, longest: int) -> int:
        """Return how many samples of up to that length a batch may have."""
        if self.batch_size is not None:
            return self.batch_size
        assert self.max_tokens is not None
        return self.max_tokens // max(1, self._padded(longest))

    def _padded(self, length: int) -> int:
        return -(-length // self.pad_to_multiple) * self.pad_to_multiple

    def order(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> BucketOrder:
        """Cut ``samples`` (None: all) into buckets, and let these come in random order. Raises ValueError as above."""
        self.check_longest(lengths)
        if self.step_size is not None:
            return self.planning().order(lengths, samples, draws)
        order = np.empty(len(lengths if samples is None else samples), np.int64)
        cuts = np.zeros(2, np.int64)
        if len(order):
            cuts = _native.bucket_steps(
                lengths,
                order,
                samples=samples,
                window=self.window,
                batch_size=self.batch_size or 0,
                max_tokens=self.max_tokens or 0,
                multiple=self.pad_to_multiple,
                world_size=self.world_size,
                seed=draws.seed,
                epoch=draws.epoch,
            )
        numbers, full = shuffled(len(cuts) - 2, draws), int(cuts[-2])
        ends = np.concatenate(([0], np.cumsum(np.diff(cuts)[numbers], dtype=np.int64), [len(order)]))
        if self.batch_size is not None:  # in place: allocating new memory would take longer than the plan
            _native.permute_steps(order, self.batch_size * self.world_size, numbers)
        else:
            planned, order = order, np.empty_like(order)
            _native.deal_steps(planned, cuts, numbers, 0, 1, order[:full])
            order[full:] = planned[full:]
        return BucketOrder(order, ends, self, lengths)

    def cuts_like(self, other: BucketRule) -> bool:
        """Return whether two rules give a step the same size."""
        return all(getattr(self, name) == getattr(other, name) for name in _SIZING)


_SIZING = ("batch_size", "max_tokens", "pad_to_multiple", "world_size")


@dataclass(frozen=True, slots=True)
class BucketOrder:
    """
    Samples in the order in which they come: bucket k is ``order[ends[k]:ends[k + 1]]``, the longest sample first. Each
    was planned by ``rule`` as one of its steps; the last may be short. ``lengths`` are those of all samples, by index.
    """

    order: NDArray[np.int64]
    ends: NDArray[np.int64]
    rule: BucketRule
    lengths: NDArray[np.int32]

    def steps(self, rule: BucketRule, consumed: int) -> NDArray[np.int64]:
        """
        Cut what is left into steps: into the buckets if steps by ``rule`` are as large, or else into samples that
        follow each other in the order, also from two buckets. See ``PlannedOrder``.
        """
        if rule.batch_size is not None:
            return even_steps(len(self.order), consumed, rule.batch_size * rule.world_size)
        check_consumed(consumed, len(self.order))
        cuts = [consumed]
        while cuts[-1] < len(self.order):
            bucket = int(np.searchsorted(self.ends, cuts[-1]))
            if self.ends[bucket] == cuts[-1] and rule.cuts_like(self.rule):
                return np.append(cuts, self.ends[bucket + 1 :])
            cuts.append(self._end_of_step(rule, cuts[-1]))
        return np.array(cuts, np.int64)

    def _end_of_step(self, rule: BucketRule, start: int) -> int:
        """Return where a step by ``max_tokens`` ends: equally many samples for each rank, or all that are left."""
        ranks, order = rule.world_size, self.order
        most = rule.most(int(self.lengths[order[start]])) * ranks  # none shorter behind it makes room for more
        longest = np.maximum.accumulate(self.lengths[order[start : start + most]])
        batches = range(1, len(longest) // ranks + 1)
        if start + len(longest) == len(order) and -(-len(longest) // ranks) <= rule.most(int(longest[-1])):
            return len(order)
        return start + ranks * bisect(batches, False, key=lambda size: size > rule.most(int(longest[size * ranks - 1])))

    def left(self, consumed: int) -> NDArray[np.int64]:
        """Return the samples, ascending, that come after so many; they overwrite ``order``."""
        check_consumed(consumed, len(self.order))
        ends = np.array([0, consumed], np.int64)
        return self.order[: _native.left_over(self.order, ends, np.zeros(1, np.int64), len(self.lengths))]

    def batches(self, rule: BucketRule, rank: int, ends: NDArray[np.int64]) -> Batches:
        """Return one rank's batches: of the samples of each step, every ``world_size``-th."""
        if len(ends) == 1:
            return Batches(self.order[:0], np.zeros(1, np.int64))
        world_size, start = rule.world_size, int(ends[-2])
        last = self.order[start:]
        division = Division(
            len(last), rule.most(int(self.lengths[last].max())), world_size, rule.uneven, rule.drop_last
        )
        mine = np.resize(last, division.samples * world_size)[rank::world_size]
        sizes = np.append(np.diff(ends[:-1]) // world_size, [len(mine)] if len(mine) else [])
        padding = max(0, len(mine) - len(range(rank, division.count, world_size)))
        cuts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        samples = self._of_rank(rank, world_size, ends[:-1], mine)
        return Batches(samples, cuts, division.repeated, division.dropped, padding=padding)

    def _of_rank(
        self, rank: int, world_size: int, ends: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return a rank's samples of the steps before the last one, then ``last``."""
        first, stop = int(ends[0]), int(ends[-1])
        if world_size == 1 and len(last) <= len(self.order) - stop:
            return self.order[first : stop + len(last)]
        samples = np.empty((stop - first) // world_size + len(last), np.int64)
        _native.deal_steps(self.order, ends, np.arange(len(ends) - 1), rank, world_size, samples)
        samples[(stop - first) // world_size :] = last
        return samples
