"""PackSampler: batches of samples that together fill a budget of tokens, for packed sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import Draws, PlannedSampler, shuffled
from fastio.samplers.position import plain, whole
from fastio.samplers.share import Ranks
from fastio.types.options import explains_names

__all__ = ["PackSampler"]

Packing = Literal["mixed", "longest_first"]

_WINDOW_SAMPLES = 1 << 16
_MOST_TOKENS = (1 << 31) - 2


class PackSampler(PlannedSampler):
    """
    Packs each window of an epoch's random order into rows of up to ``max_tokens`` tokens, without padding::

        sampler = PackSampler(dataset.column("length"), max_tokens=8192)
        FastLoader(dataset, batch_sampler=sampler, collate="pack")

    * ``lengths``: one integer for each sample, ``(n,)``. ValueError if one exceeds ``max_tokens``.
    * ``rows``: how many rows make a batch; None for one without an axis of rows. See ``PackCollate``.
    * ``packing="mixed"`` takes samples as they come, and closes each row with two that leave nothing free, so that
      lengths in a row differ as they do overall. The last sixteenth of a window is packed best fit decreasing.
      ``packing="longest_first"`` packs the whole window so, the longest sample first, each into the row that it fills
      most, which puts samples of like lengths together; "mixed" does the same for lengths of which it could not make
      rows that are as full. ``mixing(epoch)`` says how alike the lengths of a row are.
    * ``window``: how many samples are packed together, 65,536 by default. The emptiest rows of a window are reopened
      in the next one, so only those of the last window may be far from full.
    * A step is one batch per rank. If the last step has too few rows, ``uneven`` decides: "pad" and "repeat" repeat
      rows of that step, "drop" leaves them out. ``plan(epoch)`` counts the samples.
    * ``rank``, ``world_size`` and ``ranks`` as in FastLoader.
    * Apart from those, each sample comes exactly once per epoch. All ranks compute the same plan.
    * An epoch can be continued with other options and another number of ranks: ``state_dict`` says what all ranks
      have had, and the other samples are packed anew. ``lengths``, ``seed`` and ``shuffle`` must stay.
    """

    @explains_names(groups={"ranks": Ranks})
    def __init__(  # noqa: PLR0913 - named like those of LengthBucketSampler
        self,
        lengths: ArrayLike,
        *,
        max_tokens: int,
        rows: int | None = None,
        packing: Packing = "mixed",
        window: int = _WINDOW_SAMPLES,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: Ranks | None = None,
        uneven: Uneven = "pad",
    ) -> None:
        super().__init__(lengths, Ranks.of(ranks, rank, world_size))
        self.max_tokens = max_tokens
        self.rows = rows
        self.packing: Packing = packing
        self.window = window
        self.shuffle = shuffle
        self.seed = seed
        self.uneven: Uneven = uneven
        self._rule().check_longest(self._lengths)
        self._close(PackSampler)

    def _rule(self) -> PackRule:
        return self._rule_of({name: getattr(self, name) for name in PackRule.__slots__})

    def _rule_of(self, options: Mapping[str, Any]) -> PackRule:
        return PackRule(**options)

    def mixing(self, epoch: int) -> float:
        """
        Return how much the lengths within a row differ, as a share of how much they differ overall: the standard
        deviation within the rows of an epoch, of all ranks, divided by that of all lengths.

        A random draw gives 1; 0 says that each row has samples of one length, and nan that there is nothing to compare.
        """
        steps = self._rule().steps(self._lengths, None, Draws(int(self.seed), epoch if self.shuffle else None))
        return _mixing(self._lengths[steps.order].astype(np.float64), steps.cuts)


def _mixing(lengths: NDArray[np.float64], cuts: NDArray[np.int64]) -> float:
    sizes = np.diff(cuts)  # no row is empty
    freedom = len(lengths) - len(sizes)
    if freedom <= 0 or not np.ptp(lengths):
        return float("nan")
    means = np.add.reduceat(lengths, cuts[:-1]) / sizes
    within = np.square(lengths - np.repeat(means, sizes)).sum() / freedom
    return float(np.sqrt(within) / lengths.std())


@dataclass(frozen=True, slots=True)
class PackRule:
    """
    How PackSampler divides samples; the names are its options. Raises ValueError for impossible numbers.

    States and receipts of 0.1.0 lack the options that have defaults here, which are what it did.
    """

    max_tokens: int
    window: int
    world_size: int
    uneven: Uneven
    rows: int | None = None
    packing: Packing = "longest_first"

    def __post_init__(self) -> None:
        if self.rows is not None:
            whole("rows", self.rows, "1 or more, or None", least=1)
        if self.packing not in get_args(Packing):
            raise ValueError(f"packing={self.packing!r}: expected one of {', '.join(map(repr, get_args(Packing)))}")
        for name in ("window", "world_size"):
            whole(name, getattr(self, name), "1 or more", least=1)
        whole("max_tokens", self.max_tokens, f"1 to {_MOST_TOKENS}", least=1, below=_MOST_TOKENS + 1)
        Division(0, 1, self.world_size, self.uneven)  # refuses unknown values

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values, named as 0.1.0 did: the same position is told in the same words."""
        options = asdict(self)
        return plain({one.name: options[one.name] for one in fields(self) if options[one.name] != one.default})

    def check_longest(self, lengths: NDArray[np.int32]) -> None:
        """Raise ValueError if a sample has more tokens than a batch may have."""
        if len(lengths) and lengths.max() > self.max_tokens:
            index = int(lengths.argmax())
            raise ValueError(
                f"max_tokens={self.max_tokens}: sample {index} alone has {lengths[index]} tokens: raise "
                "max_tokens, or cut texts when packing (fastio pack --max-length)"
            )

    def steps(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> PackSteps:
        """Pack ``samples`` (None: all). Raises ValueError if one is longer than a batch."""
        self.check_longest(lengths)
        chosen = lengths if samples is None else lengths[samples]
        order = np.empty(len(chosen), np.int64)
        cuts = np.zeros(1, np.int64)
        if len(order):
            cuts = _native.best_fit_bins(
                chosen,
                order,
                samples=None,
                window=self.window,
                capacity=min(self.max_tokens, max(1, int(chosen.sum(dtype=np.int64)))),  # a window costs memory
                world_size=self.world_size * (self.rows or 1),
                mixed=self.packing == "mixed",
                seed=draws.seed,
                epoch=draws.epoch,
            )
        if samples is not None:
            order = samples[order]
        rows = self.rows or 1
        full, rest = divmod(len(cuts) - 1, self.world_size * rows)
        division = Division(rest, rows, self.world_size, self.uneven)
        return PackSteps(order, cuts, shuffled(full, draws), division, len(lengths))


@dataclass(frozen=True, slots=True)
class PackSteps:
    """
    Packed samples: row k is ``order[cuts[k]:cuts[k + 1]]``. Each run of a batch of rows per rank is a step;
    ``numbers`` is the order in which the full ones come. The rows left over are the last step, divided by
    ``division``, whose samples are rows.
    """

    order: NDArray[np.int64]
    cuts: NDArray[np.int64]
    numbers: NDArray[np.int64]
    division: Division
    count: int  # samples are numbers below this

    def __len__(self) -> int:
        return len(self.numbers) + self.division.batches

    def left(self, steps: int) -> NDArray[np.int64]:
        """Return the samples, ascending, that come after so many steps; they overwrite ``order``."""
        if steps == len(self):  # what the last step leaves out does not come in this epoch
            return self.order[:0]
        step = self.division.world_size * self.division.batch_size
        cuts = np.ascontiguousarray(self.cuts[::step])
        return self.order[: _native.left_over(self.order, cuts, self.numbers[:steps], self.count)]

    def batches(self, rank: int) -> Batches:
        """Return one rank's batches: its rows of each full step, then those of the last one."""
        division, world_size, rows = self.division, self.division.world_size, self.division.batch_size
        sizes = np.diff(self.cuts)
        rest = np.arange(len(self.numbers) * world_size * rows, len(sizes))
        last = np.resize(rest, division.samples * world_size)
        full = (self.numbers[:, None] * world_size + rank) * rows + np.arange(rows)
        each = division.samples
        mine = np.concatenate((full.reshape(-1), last[rank * each : (rank + 1) * each]))
        ends = np.concatenate(([0], np.cumsum(sizes[mine])))
        indices = np.empty(int(ends[-1]), np.int64)
        _native.deal_steps(self.order, self.cuts, mine, 0, 1, indices)
        repeated = int(sizes[last[len(rest) :]].sum())
        dropped = int(sizes[rest[len(last) :]].sum())
        padded = division.padding(rank)
        padding = int(sizes[mine[len(mine) - padded :]].sum()) if padded else 0
        return Batches(indices, np.append(ends[:-1:rows], ends[-1]), repeated, dropped, padding=padding)
