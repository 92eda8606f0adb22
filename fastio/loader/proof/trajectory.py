"""Joins the parts of an epoch, over ranks and restarts, into the one way on which it was given."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastio.types.receipt import ReceiptPart

__all__ = ["joined", "unique_parts"]

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
