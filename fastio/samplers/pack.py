"""PackSampler: batches of samples that together fill a budget of tokens, for packed sequences."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from heapq import heapify, heappop, heappush
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches, random_ids
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import Draws, PlannedSampler, as_lengths, place_in, shuffled
from fastio.samplers.position import plain, whole
from fastio.samplers.share import Ranks
from fastio.types.options import explains_names
from fastio.types.rows_report import RowsReport
from fastio.types.spans import numbers_within
from fastio.types.split import Split

__all__ = ["PackSampler"]

Packing = Literal["mixed", "longest_first"]
TooLong = Literal["refuse", "drop", "cut", "split"]

_WINDOW_SAMPLES = 1 << 16
_MOST_TOKENS = (1 << 31) - 2
_NAMED = 5  # samples in a warning

log = logging.getLogger(__name__)


class PackSampler(PlannedSampler):
    """
    Packs each window of an epoch's random order into rows of up to ``max_tokens`` tokens, without padding::

        sampler = PackSampler(dataset.column("length"), max_tokens=8192)
        FastLoader(dataset, batch_sampler=sampler, collate="pack")

    * ``lengths``: one integer for each sample, ``(n,)``.
    * ``patches`` and ``max_patches`` are a second budget, of the patches of pictures beside text: one integer for each
      sample, ``(n,)``, and how many a row may have. A row keeps to both, and is as full as the scarcer one allows::

          tokens, patches = vision_lengths(dataset, transforms)
          PackSampler(tokens, max_tokens=8192, patches=patches, max_patches=16384)

    * ``too_long``: what becomes of samples of more than ``max_tokens`` or ``max_patches``. "refuse" raises ValueError,
      "drop" leaves them out, and "cut" has their first ``max_tokens`` tokens alone, in batches of ``collate="pack"``.
      "split" makes parts of them, for FastLoader: each of ``max_tokens``, but for the last, and beginning with the last
      ``overlap`` tokens of the one before. A part is a sample of its own: its positions begin with 0, its first token
      does not count in the loss, and it comes anywhere in the epoch. Samples with ``patches`` are neither cut nor
      split. ``report()`` names the samples that are too long, and so does a warning.
    * ``rows``: how many rows make a batch; None for one without an axis of rows. See ``PackCollate``.
    * ``packing="mixed"`` takes samples as they come, and closes each row with two that leave nothing free, so that
      lengths in a row differ as they do overall. The last sixteenth of a window is packed best fit decreasing.
      ``packing="longest_first"`` packs the whole window so, the longest sample first, each into the row that it fills
      most, which puts samples of like lengths together; "mixed" does the same for lengths of which it could not make
      rows that are as full. With ``patches``, it is always "mixed".
    * ``window``: how many samples are packed together, 65,536 by default. The emptiest rows of a window are reopened
      in the next one, so only those of the last window may be far from full.
    * A step is one batch per rank. If the last step has too few rows, ``uneven`` decides: "pad" shares them out as they
      are, and splits rows where there are fewer than ranks; samples come twice only where they are fewer, too. "repeat"
      repeats rows until batches are full, "drop" leaves rows out. ``plan(epoch)`` counts the samples.
    * ``rank``, ``world_size`` and ``ranks`` as in FastLoader.
    * Apart from those, each sample, or each part of one, comes exactly once per epoch. All ranks compute the same plan.
    * ``report(epoch)`` says how full rows are, and how mixed; so does a loader's ``stats.packing``.
    * An epoch can be continued with another number of ranks and of ``rows``: ``state_dict`` says what all ranks have
      had, and the other rows come in the order that was planned where the epoch began. With other budgets, another
      ``packing`` or ``window``, the rest is packed anew. ``lengths``, ``patches``, ``seed`` and ``shuffle`` must stay,
      and while samples are split, ``max_tokens`` and ``overlap``.
    * ``step_size``: how many rows alike in what they cost follow each other, whatever ranks begin the epoch: any number
      of them then has one order, from the start. The default are those of a step of the first ranks.
    """

    @explains_names(groups={"ranks": Ranks})
    def __init__(  # noqa: PLR0913 - named like those of LengthBucketSampler
        self,
        lengths: ArrayLike,
        *,
        max_tokens: int,
        patches: ArrayLike | None = None,
        max_patches: int | None = None,
        rows: int | None = None,
        packing: Packing = "mixed",
        too_long: TooLong = "refuse",
        overlap: int = 0,
        window: int = _WINDOW_SAMPLES,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: Ranks | None = None,
        uneven: Uneven = "pad",
        step_size: int | None = None,
    ) -> None:
        super().__init__(lengths, Ranks.of(ranks, rank, world_size))
        self._patches = None if patches is None else as_lengths(patches, "patches")
        self.max_tokens = max_tokens
        self.max_patches = max_patches
        self.rows = rows
        self.packing: Packing = packing
        self.too_long: TooLong = too_long
        self.overlap = overlap
        self.window = window
        self.shuffle = shuffle
        self.seed = seed
        self.uneven: Uneven = uneven
        self.step_size = step_size
        self._needs = self._of_both()
        self._rule().check_longest(self._needs)
        whole("overlap", overlap, f"0 to {max_tokens - 1} (max_tokens={max_tokens})", least=0, below=max_tokens)
        if overlap and too_long != "split":
            raise ValueError(f"overlap={overlap} is for too_long='split', got too_long={too_long!r}")
        self._too_long = np.flatnonzero(~self._rule().fit(self._needs))
        self._latest: tuple[int, RowsReport] | None = None
        if len(self._too_long):
            self._warn()
        self._close(PackSampler)

    def _of_both(self) -> NDArray[np.int32]:
        """
        Return what samples need of the budgets: tokens ``(n,)``, or tokens and patches ``(n, 2)``. Raises ValueError
        for patches without a budget of them, or the reverse, and for options that do not go with two.
        """
        patches = self._patches
        if patches is None or self.max_patches is None:
            if patches is not None or self.max_patches is not None:
                raise ValueError("patches= and max_patches= are one budget: expected both or neither")
            return self._lengths
        if len(patches) != len(self._lengths):
            raise ValueError(f"{len(patches)} patches, {len(self._lengths)} lengths: expected one of each for a sample")
        if self.too_long in ("cut", "split"):
            raise ValueError(
                f"too_long={self.too_long!r} with patches=: pictures cannot be divided: expected 'refuse' or 'drop'"
            )
        if self.packing != "mixed":
            raise ValueError(f"packing={self.packing!r} with patches=: two budgets are packed 'mixed': drop packing=")
        needs = np.empty((len(patches), 2), np.int32, order="F")  # native code takes columns
        needs[:, 0], needs[:, 1] = self._lengths, patches
        return needs

    def _warn(self) -> None:
        listed = ", ".join(map(str, self._too_long[:_NAMED])) + (", ..." if len(self._too_long) > _NAMED else "")
        fate = {"drop": "are left out", "cut": "lose their ends", "split": "are split"}[self.too_long]
        log.warning(
            "PackSampler: %d of %d samples have more than %s and %s: %s; report() has all",
            len(self._too_long),
            len(self._lengths),
            f"{self.max_tokens} tokens" + (f" or {self.max_patches} patches" if self.max_patches else ""),
            fate,
            listed,
        )

    def _rule(self) -> PackRule:
        return self._rule_of({name: getattr(self, name) for name in PackRule.__slots__})

    def _rule_of(self, options: Mapping[str, Any]) -> PackRule:
        rule = PackRule(**options)
        if (rule.max_patches is None) != (self._patches is None):
            raise ValueError(
                f"max_patches={rule.max_patches}: expected a budget of patches where, and only where, samples have them"
            )
        return rule

    def _goes_on(self, begun: PackRule) -> bool:
        own = self._rule()
        return replace(begun, world_size=own.world_size, rows=own.rows, uneven=own.uneven) == own

    @property
    def split(self) -> Split | None:
        """How samples are divided into parts; None if none is."""
        return Split(self.max_tokens, self.overlap) if self.too_long == "split" and len(self._too_long) else None

    @property
    def batch_patches(self) -> int:
        """
        The most patches that all rows of a batch have together; without a budget of patches, lengths count patches,
        and a row has at most ``max_tokens`` of them.
        """
        return (self.max_tokens if self.max_patches is None else self.max_patches) * (self.rows or 1)

    def check_lengths(self, lengths: NDArray[np.int64]) -> None:
        """Raise ValueError if samples are split by other lengths than these: tokens would not come."""
        if self.split is None or np.array_equal(lengths, self._lengths):
            return
        index = int((lengths != self._lengths).argmax())
        raise ValueError(
            f"too_long='split': sample {index} has {lengths[index]} tokens, but the PackSampler was told "
            f"{self._lengths[index]}: expected PackSampler(dataset.lengths, ...) of this dataset"
        )

    def _parts(self) -> NDArray[np.int64]:
        """How many parts each sample has."""
        split = self.split
        return np.ones(len(self._lengths), np.int64) if split is None else split.counts(self._lengths)

    def _units(self, epoch: int) -> NDArray[np.int32]:
        split = self.split
        if split is None:
            return self._needs
        samples, numbers = _of_parts(self._parts())
        return split.bounds(self._lengths[samples].astype(np.int64), numbers)[1].astype(np.int32)

    def _samples_of(self, units: Batches, epoch: int) -> Batches:
        if self.split is None:
            return units
        samples, numbers = (each[units.indices] for each in _of_parts(self._parts()))
        return replace(units, order=samples, parts=numbers, random_ids=random_ids(samples, numbers))

    def _lists(self) -> Iterator[list[int]]:
        if self.split is not None:
            raise ValueError(
                "too_long='split': a DataLoader takes whole samples: expected FastLoader(dataset, "
                "batch_sampler=sampler, collate='pack')"
            )
        return super()._lists()

    def report(self, epoch: int | None = None) -> RowsReport:
        """Return what the rows of an epoch are like, by default of the one planned last; the latest answer is kept."""
        if epoch is None:
            planned = self._planned
            epoch = 0 if planned is None else int(planned[0][0])
        latest = self._latest  # once: another thread may ask for another epoch
        if latest is None or latest[0] != epoch:
            latest = self._latest = epoch, self._worked_out(epoch)
        return latest[1]

    def _worked_out(self, epoch: int) -> RowsReport:
        rule, units = self._rule(), self._units(epoch)
        packed = rule.order(units, None, Draws(int(self.seed), epoch if self.shuffle else None))
        used = rule.used(units)[packed.order]
        lengths = _tokens_of(used)
        rows = len(packed.cuts) - 1
        tokens, stored = int(lengths.sum(dtype=np.int64)), int(self._lengths.sum(dtype=np.int64))
        patches = None if self.max_patches is None else int(used[:, 1].sum(dtype=np.int64))
        dropped, cut, split = (
            self._too_long if self.too_long == fate else self._too_long[:0] for fate in ("drop", "cut", "split")
        )
        return RowsReport(
            rows=rows,
            samples=len(lengths),
            filled=_share(tokens, rows * self.max_tokens),
            mixing=_mixing(lengths.astype(np.float64), packed.cuts),
            dropped=dropped,
            cut=cut,
            lost_tokens=max(0, stored - tokens),
            split=split,
            repeated_tokens=max(0, tokens - stored),
            patches_filled=None if patches is None else _share(patches, rows * (self.max_patches or 0)),
        )

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch: see WholeEpochs; None if some are dropped for equal ranks."""
        every = super().whole(epoch, dropped)
        if every is not None and self.split is not None:
            return np.repeat(every, self._parts())
        if every is None or self.too_long != "drop":
            return every
        return np.delete(every, self._too_long)

    def configuration(self) -> dict[str, Any]:
        """Return what must be equal for a history to mean the same samples."""
        own = super().configuration()
        if self._patches is not None:
            own |= {"patches_crc32": _native.crc32(self._patches)}
        if self.split is not None:
            return {**own, "split": plain(asdict(self.split))}
        if self.too_long != "drop" or not len(self._too_long):
            return own
        return {**own, "dropped_crc32": _native.crc32(self._too_long)}


def _of_parts(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sample of each part, and its number within that."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts), numbers_within(counts)


def _tokens_of(needs: NDArray[np.int32]) -> NDArray[np.int32]:
    return needs if needs.ndim == 1 else needs[:, 0]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


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

    Samples are given by what they need: tokens ``(n,)``, or, with ``max_patches``, tokens and patches ``(n, 2)``.

    States and receipts of 0.1.0 lack the options that have defaults here, which are what it did.
    """

    max_tokens: int
    window: int
    world_size: int
    uneven: Uneven
    rows: int | None = None
    packing: Packing = "longest_first"
    too_long: TooLong = "refuse"
    max_patches: int | None = None
    step_size: int | None = None

    def __post_init__(self) -> None:
        if self.step_size is not None:
            whole("step_size", self.step_size, "1 or more, or None", least=1)
        if self.rows is not None:
            whole("rows", self.rows, "1 or more, or None", least=1)
        if self.packing not in get_args(Packing):
            raise ValueError(f"packing={self.packing!r}: expected one of {', '.join(map(repr, get_args(Packing)))}")
        if self.too_long not in get_args(TooLong):
            raise ValueError(f"too_long={self.too_long!r}: expected one of {', '.join(map(repr, get_args(TooLong)))}")
        for name in ("window", "world_size"):
            whole(name, getattr(self, name), "1 or more", least=1)
        for name in ("max_tokens", "max_patches"):
            if getattr(self, name) is not None or name == "max_tokens":
                whole(name, getattr(self, name), f"1 to {_MOST_TOKENS}", least=1, below=_MOST_TOKENS + 1)
        Division(0, 1, self.world_size, self.uneven)  # refuses unknown values

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values, named as 0.1.0 did: the same position is told in the same words."""
        options = asdict(self)
        return plain({one.name: options[one.name] for one in fields(self) if options[one.name] != one.default})

    def fit(self, needs: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which samples a row has room for, ``(n,)``."""
        fits: NDArray[np.bool_] = _tokens_of(needs) <= self.max_tokens
        return fits if self.max_patches is None else fits & (needs[:, 1] <= self.max_patches)

    def check_longest(self, needs: NDArray[np.int32]) -> None:
        """Raise ValueError if a sample has more than a row may have."""
        if self.too_long != "refuse" or not len(needs):
            return
        advice = "choose too_long='drop', or let transforms make pictures smaller"
        if self.max_patches is None:
            advice = "choose too_long='drop', 'cut' or 'split', or cut texts when packing (fastio pack --max-length)"
        limits = (("tokens", self.max_tokens), ("patches", self.max_patches))
        for (what, most), column in zip(limits, needs.reshape(len(needs), -1).T, strict=False):
            index = int(column.argmax())
            if most is not None and column[index] > most:
                raise ValueError(
                    f"max_{what}={most}: sample {index} alone has {column[index]} {what}: raise max_{what}, {advice}"
                )

    def used(self, needs: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return how much of each sample comes."""
        return np.minimum(needs, np.int32(self.max_tokens)) if self.too_long == "cut" else needs

    def order(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> PackOrder:
        """Pack ``samples`` (None: all), whose needs are ``lengths``. Raises ValueError if one needs more than a row."""
        self.check_longest(lengths)
        count = len(lengths)
        if self.too_long == "drop":
            is_short = self.fit(lengths)
            if not is_short.all():
                samples = np.flatnonzero(is_short) if samples is None else samples[is_short[samples]]
        needs = self.used(lengths)
        order, cuts = self._rows(needs if samples is None else needs[samples], draws)
        if samples is not None:
            order = samples[order]
        step = self._step
        full = (len(cuts) - 1) // step
        rest = np.arange(full * step, len(cuts) - 1)
        rows = np.concatenate(((shuffled(full, draws)[:, None] * step + np.arange(step)).reshape(-1), rest))
        ends = np.concatenate(([0], np.cumsum(np.diff(cuts)[rows], dtype=np.int64)))
        return PackOrder(order, cuts, rows, ends, count)

    @property
    def _step(self) -> int:
        """The rows of a step for which an epoch is planned."""
        return self.step_size or self.world_size * (self.rows or 1)

    def _rows(self, needs: NDArray[np.int32], draws: Draws) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return samples row by row, and where each row begins, with the end of the last."""
        order = np.empty(len(needs), np.int64)
        if len(order) == 0:
            return order, np.zeros(1, np.int64)
        tokens = np.ascontiguousarray(_tokens_of(needs))
        capacity = min(self.max_tokens, max(1, int(tokens.sum(dtype=np.int64))))  # a window costs memory
        groups = self._step
        if self.max_patches is None:
            cuts = _native.best_fit_bins(
                tokens,
                order,
                samples=None,
                window=self.window,
                capacity=capacity,
                world_size=groups,
                mixed=self.packing == "mixed",
                seed=draws.seed,
                epoch=draws.epoch,
            )
        else:
            cuts = _native.pair_bins(
                tokens,
                np.ascontiguousarray(needs[:, 1]),
                order,
                window=self.window,
                capacity=self.max_tokens,
                most_patches=self.max_patches,
                world_size=groups,
                seed=draws.seed,
                epoch=draws.epoch,
            )
        return order, cuts


@dataclass(frozen=True, slots=True)
class PackOrder:
    """
    Rows in the order in which they come: ``rows`` are their numbers, and row k is ``order[cuts[k]:cuts[k + 1]]``.
    ``ends`` counts the samples before each row that comes, and those of all.
    """

    order: NDArray[np.int64]
    cuts: NDArray[np.int64]
    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    count: int  # samples are numbers below this

    def steps(self, rule: PackRule, consumed: int) -> NDArray[np.int64]:
        """Cut the rows that are left into steps: see ``PlannedOrder``."""
        step = rule.world_size * (rule.rows or 1)
        return np.append(self.ends[place_in(self.ends, consumed) : -1 : step], self.ends[-1])

    def left(self, consumed: int) -> NDArray[np.int64]:
        """Return the samples, ascending, that come after so many; they overwrite ``order``."""
        had = self.rows[: place_in(self.ends, consumed)]
        return self.order[: _native.left_over(self.order, self.cuts, had, self.count)]

    def batches(self, rule: PackRule, rank: int, ends: NDArray[np.int64]) -> Batches:
        """Return one rank's batches: its rows of each full step, then those of the last one."""
        ranks, size = rule.world_size, rule.rows or 1
        rows = self.rows[place_in(self.ends, int(ends[0])) :]
        steps = len(rows) // (ranks * size)
        full = rows[: steps * ranks * size].reshape(steps, ranks, size)[:, rank]
        spans, new = self._last_step(rule, rows[steps * ranks * size :])
        sizes, first = spans[:, 1] - spans[:, 0], len(spans) * rank // ranks
        own = slice(first, len(spans) * (rank + 1) // ranks)

        counts = np.append(np.diff(self.cuts)[full].sum(axis=1), sizes[own].sum() if len(spans) else [])
        cuts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        indices = np.empty(int(cuts[-1]), np.int64)
        _native.deal_steps(self.order, self.cuts, full.ravel(), 0, 1, indices)
        _native.deal_steps(
            self.order, spans.reshape(-1), 2 * np.arange(first, own.stop), 0, 1, indices[int(cuts[steps]) :]
        )
        repeated, padding = int(sizes[new:].sum()), int(sizes[max(new, first) : own.stop].sum())
        dropped = int(np.diff(self.cuts)[rows[steps * ranks * size :][new:]].sum())
        return Batches(indices, cuts, repeated, dropped, padding=padding)

    def _last_step(self, rule: PackRule, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """
        Return where the rows of the last step begin and end in ``order``, ``(n, 2)``, to be shared by the ranks as they
        come, and how many of these are not repeated.
        """
        spans, ranks = np.stack((self.cuts[rows], self.cuts[rows + 1]), axis=1), rule.world_size
        if rule.uneven == "drop" or not len(rows):
            comes = len(rows) // ranks * ranks
            return spans[:comes], comes
        if rule.uneven == "repeat":
            return np.resize(spans, (ranks * (rule.rows or 1), 2)), len(rows)
        spans = _divided(spans, ranks)
        return np.resize(spans, (max(len(spans), ranks), 2)), len(spans)


def _divided(spans: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Halve those of the most samples until there are ``count``, or until each is of one sample."""
    parts = [(start - stop, start, stop) for start, stop in spans.tolist()]
    heapify(parts)
    while len(parts) < count and parts[0][0] < -1:
        _, start, stop = heappop(parts)
        middle = (start + stop) // 2
        for part in ((start, middle), (middle, stop)):
            heappush(parts, (part[0] - part[1], *part))
    return np.array(sorted(part[1:] for part in parts), np.int64)
