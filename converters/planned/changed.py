"""What differs between the plan of shards that are there and the plan of the source as it is now, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from fastio.converters.planned.plan import PackPlan
from fastio.converters.planned.shards import PlannedShard
from fastio.converters.scan import shown
from fastio.converters.source import Source, joined_checksums
from fastio.errors import StoreError
from fastio.types.units import size

__all__ = ["changed", "differences"]

_NOTHING = object()


def changed(
    path: str, shard: PlannedShard, plan: PackPlan, source: Source, others: Iterable[PlannedShard] = ()
) -> StoreError:
    """Return the error for shards of another plan under the names of this one; ``others`` are more of them."""
    words = "; ".join(differences(shard, plan, source, others))
    return StoreError(
        f"{path}: its shards were packed from another state of the source, or with other options: {words}. Give the "
        "same source and options to go on, or pack all again with --overwrite (in Python overwrite=True)"
    )


def differences(shard: PlannedShard, plan: PackPlan, source: Source, others: Iterable[PlannedShard] = ()) -> list[str]:
    """
    Return how the plan of a shard differs from ``plan`` of ``source``, the options first; never empty. ``others`` are
    shards of the same plan as the first, in which a file may be found that has another size.
    """
    before, now = shard.plan, plan.record
    words = [
        f"{what} was {form(before.get(name))}, now {form(now.get(name))}"
        for name, (what, form) in _OPTIONS.items()
        if before.get(name) != now.get(name)
    ]
    if before["samples"] != now["samples"]:
        words.append(f"the source had {before['samples']:,} samples, now {now['samples']:,}")
    if before["keys"] != now["keys"]:
        words.append(_first_other_key(shard, source) or "keys, or their order, differ")
    elif before["sizes"] != now["sizes"]:
        found = next(filter(None, (_first_other_size(each, source) for each in (shard, *others))), "")
        total = f"together {before['bytes']:,} bytes, now {now['bytes']:,}"
        if before["bytes"] == now["bytes"]:
            total = f"together {now['bytes']:,} bytes as before"
        words.append(f"files have other sizes: {found or total}")
    elif not plan.has_contents_of(before):
        found = next(filter(None, (_first_other_content(each, source) for each in (shard, *others))), "")
        words.append(f"the contents of its samples differ, by their checksums{found and f': the first is {found}'}")
    columns = {name for name in (*before, *now) if name.startswith("column ")}
    for name in sorted(columns):
        if before.get(name, _NOTHING) != now.get(name, _NOTHING):
            words.append(f"the values of {name.removeprefix('column ')!r} differ")
    for name, what in _OTHERS.items():
        if before[name] != now[name] and not words:
            words.append(what)
    return words or ["they were planned by another version of fastio"]


def _first_other_key(shard: PlannedShard, source: Source) -> str:
    """The first key of a shard that the source no longer has there; empty if the shard cannot tell."""
    start, stop = shard.plan["first"], min(shard.plan["stop"], len(source) - len(source.problems))
    if shard.plan.get("pictures") is not None or shard.packed["skipped"] or start >= stop:
        return ""  # pictures may have got other names
    keys = _keys(shard)
    for before, now in zip_longest(keys, source.scanned(range(start, stop)).keys):
        if before != now:
            return f"the first key that differs: was {shown(before or 'none')!r}, now {shown(now or 'none')!r}"
    return ""


def _first_other_size(shard: PlannedShard, source: Source) -> str:
    """The first sample of a shard that has another size in the source; empty if there is none, or nothing can tell."""
    start, stop = shard.plan["first"], shard.plan["stop"]
    if shard.plan.get("pictures") is not None or shard.packed["skipped"] or stop - start != shard.shard.count:
        return ""  # its sizes are not those of the source
    scanned = source.scanned(range(start, stop))
    before = np.sum([shard.shard.sizes[each.name] for each in shard.shard.schema.payload], axis=0)
    other = np.flatnonzero(before != scanned.sizes)
    if not len(other) or len(other) == len(before):  # if all differ, they may count other bytes than the source does
        return ""
    first = int(other[0])
    return f"{shown(scanned.keys[first])!r} had {before[first]:,} bytes, now {scanned.sizes[first]:,}"


def _first_other_content(shard: PlannedShard, source: Source) -> str:
    """The first sample of a shard that has another checksum in the source; empty as for ``_first_other_size``."""
    start, stop, data = shard.plan["first"], shard.plan["stop"], shard.shard
    if shard.plan.get("pictures") is not None or shard.packed["skipped"] or stop - start != data.count:
        return ""
    scanned = source.scanned(range(start, stop))
    before = joined_checksums([data.checksums.get(each.name) for each in data.schema.payload])
    if before is None or scanned.checksums is None:
        return ""
    other = np.flatnonzero(before != scanned.checksums)
    if not len(other) or len(other) == len(before):  # if all differ, they may be of other bytes than the source's
        return ""
    return repr(shown(scanned.keys[int(other[0])]))


def _keys(shard: PlannedShard) -> list[str]:
    data = shard.shard
    if data.key_starts is None:
        return [bytes(key).decode("utf-8", "surrogatepass") for key in data.keys]
    return bytes(data.keys).decode("utf-8", "surrogatepass").split("\0") if data.count else []


def _plain(value: Any) -> str:
    return str(value)


def _pictures(options: Mapping[str, Any] | None) -> str:
    return "none" if not options else ", ".join(f"{name}={value}" for name, value in sorted(options.items()))


def _jump(spacing: int | None) -> str:
    return "off" if spacing is None else f"every {spacing} MCUs"


def _least_bytes(size_bytes: int | None) -> str:
    return "0 bytes on" if size_bytes is None else f"{size_bytes:,} bytes on"


_OPTIONS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "version": ("the version of the plan", _plain),
    "format": ("the format", _plain),
    "shard_size": ("--shard-size", size),
    "pictures": ("what is done to pictures", _pictures),
    "jump": ("--jump", _jump),
    "jump_from": ("start points for JPEGs from", _least_bytes),
}
_OTHERS = {
    "schema": "fields or their types differ",
    "metadata": "classes, or what else is known of the source, differ (its name, label file, --shuffle, tokenizer)",
    "problems": "other files are left out, or cannot be packed",
}
