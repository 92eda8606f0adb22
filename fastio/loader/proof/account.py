"""Account: what one rank knows of the receipt of an epoch; and the receipt of one or all ranks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fastio.loader.selection.selection import Selection
from fastio.samplers.batches import WholeEpochs
from fastio.store.index.store import number_of
from fastio.types.receipt import Receipt, ReceiptPart
from fastio.types.receipt_sum import sum_indices

__all__ = [
    "Account",
    "ExpectedNumber",
    "joined",
    "receipt_of",
    "unique_parts",
]


@dataclass(frozen=True, slots=True)
class Account:
    """
    The parts of an epoch that a rank knows of.

    ``latest`` is its own since ``start``, None before an iteration has begun; ``earlier`` are those of any rank up to
    there. ``dropped`` samples of the rest do not come. ``is_known``: every batch said which samples it has.
    """

    rank: int
    world_size: int
    epoch: int
    start: Any
    latest: ReceiptPart | None
    earlier: tuple[ReceiptPart, ...]
    dropped: int
    has_ended: bool
    is_known: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the other ranks."""
        names = ("rank", "world_size", "epoch", "start", "dropped", "has_ended", "is_known")
        return {
            **{name: getattr(self, name) for name in names},
            "latest": None if self.latest is None else self.latest.to_json(),
            "earlier": [part.to_json() for part in self.earlier],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the account of ``to_json``."""
        latest = None if values["latest"] is None else ReceiptPart.from_json(values["latest"])
        earlier = tuple(map(ReceiptPart.from_json, values["earlier"]))
        return cls(**{**values, "latest": latest, "earlier": earlier})


def receipt_of(accounts: Sequence[Account], expected: Expected, *, unverified: str | None, views: int = 1) -> Receipt:
    """
    Join the accounts of some or all ranks, which must be of one iteration. ``unverified`` says why bytes are not
    compared, if they are not; ``views`` how many there were of each sample.
    """
    first = accounts[0]
    latest = [account.latest for account in accounts if account.latest is not None]
    earlier = [part for account in accounts for part in account.earlier]
    parts, missing = joined(latest, earlier, start=first.start, world_size=first.world_size)
    if not all(account.is_known for account in accounts):
        missing += ("batches of a producer that does not say which samples they have",)
    return Receipt(
        epoch=first.epoch,
        parts=parts,
        expected=expected.number,
        expected_indices=expected.indices,
        expected_samples=expected.samples,
        distinct=expected.distinct,
        times=expected.times,
        dropped=first.dropped,
        has_ended=all(account.has_ended for account in accounts),
        is_whole_store=expected.is_whole_store,
        unverified=unverified,
        missing=missing,
        views=views,
    )


# Joins the parts of an epoch, over ranks and restarts, into the one way on which it was given.

_Section = dict[int, ReceiptPart]  # by rank


def unique_parts(parts: Iterable[ReceiptPart]) -> tuple[ReceiptPart, ...]:
    """
    Return each part once. Raises ValueError if two are of the same samples and rank, but differ.
    """
    known: dict[str, ReceiptPart] = {}
    for part in parts:
        other = known.setdefault(part.key, part)
        if other != part:
            raise ValueError(
                f"two states have different receipts of rank {part.rank} of {part.world_size}, {_span(part)}: "
                "load states of one checkpoint"
            )
    return tuple(known.values())


def joined(
    latest: Sequence[ReceiptPart], earlier: Iterable[ReceiptPart], *, start: Any, world_size: int
) -> tuple[tuple[ReceiptPart, ...], tuple[str, ...]]:
    """
    Return the parts that lead from the beginning of the epoch to ``latest``, and what is missing among them.

    ``latest`` are those of the ranks that iterate now, ``world_size`` of them, from ``start`` on. Every part before
    begins where another one ends. Parts on other ways, such as those given after a checkpoint that was loaded later,
    are left out: their samples came again.
    """
    way = [list(latest)]
    missing = [] if not latest else _missing_ranks({part.rank: part for part in latest}, world_size, "")
    by_stop = _sections(unique_parts(earlier))
    place, passed = start, set[str]()
    while place is not None:
        sections = by_stop.get(_text(place), [])
        if not sections or _text(place) in passed:
            missing.append(f"the epoch's beginning, up to {_place(place)}: load the states of all ranks")
            break
        passed.add(_text(place))
        section = max(sections, key=_completeness)
        way.append(list(section.values()))
        some = next(iter(section.values()))
        missing += _missing_ranks(section, some.world_size, f"{_span(some)} of ")
        place = some.start
    parts = [part for section in reversed(way) for part in sorted(section, key=lambda part: part.rank)]
    return tuple(parts), tuple(missing)


def _sections(parts: Iterable[ReceiptPart]) -> Mapping[str, list[_Section]]:
    """Return the sections by their ends: the parts of all ranks between the same two positions."""
    sections: dict[tuple[str, str, int], _Section] = defaultdict(dict)
    for part in parts:
        if part.start != part.stop:
            sections[_text(part.stop), _text(part.start), part.world_size][part.rank] = part
    by_stop: dict[str, list[_Section]] = defaultdict(list)
    for (stop, _, _), section in sections.items():
        by_stop[stop].append(section)
    return by_stop


def _completeness(section: _Section) -> float:
    return len(section) / next(iter(section.values())).world_size


def _missing_ranks(section: _Section, world_size: int, what: str) -> list[str]:
    absent = [str(rank) for rank in range(world_size) if rank not in section]
    if not absent:
        return []
    ranks = f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)}"
    remedy = "load all ranks' states: load_state_dict([...])" if what else "receipt() of all ranks has them"
    return [f"{what}{ranks}: {remedy}"]


def _span(part: ReceiptPart) -> str:
    return f"from {_place(part.start)} to {_place(part.stop)}"


def _place(place: Any) -> str:
    """Return a position of an epoch in words: a number counts samples, a history of steps is shown by its last one."""
    if place is None:
        return "the epoch's beginning"
    return f"sample {place:,}" if isinstance(place, int) else f"position {_text(place)}"


def _text(place: Any) -> str:
    return json.dumps(place, sort_keys=True)


# ExpectedNumber: what the receipt of an epoch should be, from the store's index and the sampler's order.


@dataclass(frozen=True, slots=True)
class Expected:
    """
    The numbers that an epoch should have, with checksums (None: there are none to compare) and of its indices alone,
    and its number of samples: ``distinct`` different ones, each ``times`` times, at least and at most.
    ``is_whole_store``: each sample of the store once.
    """

    number: int | None
    indices: int | None
    samples: int | None
    distinct: int | None
    times: tuple[int, int] | None
    is_whole_store: bool


class ExpectedNumber:
    """Works out what the receipts of a loader should be; the last answer is kept."""

    def __init__(self, selection: Selection, fields: tuple[str, ...]) -> None:
        self._selection = selection
        self._fields = fields
        self._latest: tuple[tuple[int, int], Expected] | None = None

    def of(self, epoch: int, dropped: int) -> Expected:
        """Return what an epoch should give of which the last ``dropped`` samples are left out."""
        latest = self._latest  # once: another thread may ask for another epoch
        if latest is None or latest[0] != (epoch, dropped):
            latest = self._latest = (epoch, dropped), self._worked_out(epoch, dropped)
        return latest[1]

    def _worked_out(self, epoch: int, dropped: int) -> Expected:
        sampler, base = self._selection.sampler, self._selection.base
        indices = sampler.whole(epoch, dropped) if isinstance(sampler, WholeEpochs) else None
        if indices is None:
            return Expected(None, None, None, None, None, is_whole_store=False)
        number = None
        if not base.makes_samples:
            number = number_of(base.store, self._fields, indices)
        counts = np.bincount(indices)
        counts = counts[counts > 0]
        times = (int(counts.min()), int(counts.max())) if len(counts) else None
        is_whole = not base.makes_samples and times in (None, (1, 1)) and len(counts) == len(base.store)
        return Expected(number, sum_indices(indices), len(indices), len(counts), times, is_whole)
