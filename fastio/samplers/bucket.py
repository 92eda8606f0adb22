"""LengthBucketSampler: batches of samples with similar lengths, so that little is padded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import Draws, PlannedSampler, shuffled
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
      have had, and the other samples are bucketed anew. ``lengths``, ``seed`` and ``shuffle`` must stay.

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
    ) -> None:
        super().__init__(lengths, Ranks.of(ranks, rank, world_size))
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.pad_to_multiple = pad_to_multiple
        self.uneven: Uneven = uneven
        self.window = 1 if window is None else window
        self._rule().check_longest(self._lengths)
        if window is None:
            self.window = self._default_window()
        self._close(LengthBucketSampler)

    def _default_window(self) -> int:
        batch = self.batch_size
        if batch is None:
            assert self.max_tokens is not None
            mean = float(self._lengths.mean()) if len(self._lengths) else 1.0
            batch = int(self.max_tokens / max(mean, 1.0)) + 1
        return int(_WINDOW_STEPS * batch * self.world_size)

    def _rule(self) -> BucketRule:
        return self._rule_of({name: getattr(self, name) for name in BucketRule.__slots__})

    def _rule_of(self, options: Mapping[str, Any]) -> BucketRule:
        return BucketRule(**options)


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

    def __post_init__(self) -> None:
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ValueError(
                f"batch_size={self.batch_size}, max_tokens={self.max_tokens}: expected exactly one of the two"
            )
        for name in ("batch_size", "max_tokens", "window", "pad_to_multiple", "world_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), "1 or more", least=1)
        Division(0, 1, self.world_size, self.uneven, self.drop_last)  # refuses unknown values

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values."""
        return plain(asdict(self))

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

    def steps(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> BucketSteps:
        """Cut ``samples`` (None: all) into steps. Raises ValueError if one is longer than a batch."""
        self.check_longest(lengths)
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
        last = order[cuts[-2] :]
        most = self.most(int(lengths[last].max())) if len(last) else 1
        division = Division(len(last), most, self.world_size, self.uneven, self.drop_last)
        return BucketSteps(order, cuts[:-1], shuffled(len(cuts) - 2, draws), division, self.batch_size, len(lengths))


@dataclass(frozen=True, slots=True)
class BucketSteps:
    """
    Samples in steps of similar length: full step k is ``order[cuts[k]:cuts[k + 1]]``, and ``numbers`` is the order in
    which these come. What lies behind the last cut is the last step, divided by ``division``.
    """

    order: NDArray[np.int64]
    cuts: NDArray[np.int64]
    numbers: NDArray[np.int64]
    division: Division
    batch_size: int | None
    count: int  # samples are numbers below this

    def __len__(self) -> int:
        return len(self.numbers) + self.division.batches

    def left(self, steps: int) -> NDArray[np.int64]:
        """Return the samples, ascending, that come after so many steps; they overwrite ``order``."""
        if steps == len(self):  # what the last step leaves out does not come in this epoch
            return self.order[:0]
        return self.order[: _native.left_over(self.order, self.cuts, self.numbers[:steps], self.count)]

    def batches(self, rank: int) -> Batches:
        """Return one rank's batches: those of the full steps, then its part of the last one."""
        division, world_size = self.division, self.division.world_size
        last = np.resize(self.order[self.cuts[-1] :], division.samples * world_size)[rank::world_size]
        sizes = np.append(np.diff(self.cuts)[self.numbers] // world_size, [len(last)] if len(last) else [])
        ends = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        padding = max(0, len(last) - len(range(rank, division.count, world_size)))
        return Batches(self._mine(rank, last), ends, division.repeated, division.dropped, padding=padding)

    def _mine(self, rank: int, last: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a rank's samples of the full steps in the order in which they come, then ``last``."""
        rest, world_size = int(self.cuts[-1]), self.division.world_size
        if world_size == 1 and self.batch_size is not None and len(last) <= len(self.order) - rest:
            # In place: allocating new memory would take longer than the plan.
            _native.permute_steps(self.order, self.batch_size, self.numbers)
            return self.order[: rest + len(last)]
        mine = np.empty(rest // world_size + len(last), np.int64)
        _native.deal_steps(self.order, self.cuts, self.numbers, rank, world_size, mine)
        mine[rest // world_size :] = last
        return mine
