"""Shards that were packed by a plan, as they lie there, and how their plan differs from that of the source today."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.packing.plan import PackPlan, StreamPlan
from fastio.converters.packing.record import PackRecord, source_metadata
from fastio.converters.sources.source import Source, StreamedSource, is_streamed, joined_checksums
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.formats.format import Format
from fastio.store.index.sealed import Shard
from fastio.store.index.store import list_checksums
from fastio.store.kinds.scan import shown
from fastio.store.sets.seal import ShardFiles
from fastio.store.sets.set_object import SetMember
from fastio.store.store_folder import StoreFolder
from fastio.types.spans import firsts_of, sums_of
from fastio.types.units import size

__all__ = [
    "PlannedShard",
    "Position",
    "changed",
    "differences",
    "is_foreign",
    "open_shard",
    "shard_metadata",
    "stream_metadata",
]


Position = tuple[int, int]  # in a stream: pieces before it, and samples of the piece there
_OWN = {"shard", "shards", "first", "stop", "content"}  # what the record of a plan says of one of its shards


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """One whole shard: how a set lists it, and what its metadata says, in little memory, as there may be 100,000s."""

    files: ShardFiles
    member: SetMember
    number: int  # which shard of its plan this is
    of_plan: Mapping[str, Any]  # ``PackPlan.record``, one object for all shards of the plan
    own: bytes  # JSON: ``plan`` but for that, and ``packed``
    source: Mapping[str, Any] | None  # ``source_metadata``: only the first shard of a set has it, of a stream the last

    @property
    def plan(self) -> Mapping[str, Any]:
        """``PackPlan.record``, and "shard", "first", "stop": its number and its samples."""
        return {**self.of_plan, **json.loads(self.own)["plan"]}

    @property
    def packed(self) -> Mapping[str, Any]:
        """What was packed: ``PackRecord.to_json``."""
        packed: Mapping[str, Any] = json.loads(self.own)["packed"]
        return packed

    @property
    def shard(self) -> Shard:
        """Its index. Raises StoreError if another shard has its name by now."""
        return self.files.shard(self.member)


def stream_metadata(
    plan: StreamPlan,
    number: int,
    bounds: tuple[Position, Position],
    content: tuple[int, int],
    record: PackRecord,
    source: StreamedSource | None,
) -> dict[str, Any]:
    """
    Return the metadata of a shard of a stream: where it begins and stops, and the CRC-32 of all that was read up to
    there. ``source`` is given for the last shard, which has what is known of the whole source when all of it has been
    read.
    """
    place = {"shard": number, "first": list(bounds[0]), "stop": list(bounds[1]), "content": list(content)}
    metadata = {"plan": {**plan.record, **place}, "packed": record.to_json()}
    if source is None:
        return metadata
    return {**metadata, "plan": {**metadata["plan"], "shards": number + 1}, "source": source_metadata(source)}


def shard_metadata(plan: PackPlan, number: int, source: Source, record: PackRecord) -> dict[str, Any]:
    """
    Return the metadata of a shard.

    What is known of the whole source stands in the first shard alone: thousands of copies of thousands of class names
    would cost more than they are worth, as nothing but the whole set can be opened.
    """
    samples = plan.samples_of(number)
    place = {"shard": number, "first": samples.start, "stop": samples.stop}
    metadata = {"plan": {**plan.record, **place}, "packed": record.to_json()}
    return metadata if number else {**metadata, "source": source_metadata(source)}


def open_shard(files: ShardFiles, name: str) -> PlannedShard:
    """
    Open a shard. Its seal and its index are checked, not the bytes of its samples: each of them is compared with its
    checksum when it is read, and ``fastio verify`` compares all.

    Raises StoreIncomplete or StoreCorrupt if it is not whole, and StoreError if it was not packed by a plan.
    """
    shard, member = files.read(name)
    if shard.seal is None or not shard.seal.is_alone or not shard.seal.plan:
        raise StoreError(
            f"{shard.path}: is a whole file that was not packed by a plan; choose another name, or replace it "
            "with --overwrite (in Python overwrite=True)"
        )
    metadata = json.loads(shard.metadata)
    if not {"plan", "packed"} <= metadata.keys():
        raise StoreError(
            f"{shard.path}: is a shard of another kind of run, which cannot be continued here: choose another "
            "name, or --overwrite"
        )
    plan = {name: value for name, value in metadata["plan"].items() if name not in _OWN}
    own = {
        "plan": {name: metadata["plan"][name] for name in _OWN & metadata["plan"].keys()},
        "packed": metadata["packed"],
    }
    return PlannedShard(
        files,
        member,
        shard.seal.shard,
        _record(json.dumps(plan)),
        json.dumps(own, separators=(",", ":")).encode("ascii"),
        metadata.get("source"),
    )


@lru_cache(maxsize=2)
def _record(of_plan: str) -> Mapping[str, Any]:
    """Return the record of a plan, the same object for all shards in a row."""
    record: Mapping[str, Any] = json.loads(of_plan)
    return record


def is_foreign(folder: StoreFolder, name: str, form: Format) -> bool:
    """Return whether a file without a seal is a whole one of another program, not one of ours that was cut off."""
    if form.foreign is None:
        return False
    file = folder.open(name)
    try:
        form.foreign.open(file)
    except (StoreIncomplete, StoreCorrupt):
        return False
    except StoreError:
        return True
    finally:
        file.release()
    return True


# What differs between the plan of shards that are there and the plan of the source as it is now, in words.

_NOTHING = object()


def changed(
    path: str,
    shard: PlannedShard,
    plan: PackPlan | StreamPlan,
    source: Source | StreamedSource,
    others: Iterable[PlannedShard] = (),
) -> StoreError:
    """Return the error for shards of another plan under the names of this one; ``others`` are more of them."""
    words = "; ".join(differences(shard, plan, source, others))
    return StoreError(
        f"{path}: its shards were packed from another state of the source, or with other options: {words}. Give the "
        "same source and options to go on, or pack all again with --overwrite (in Python overwrite=True)"
    )


def differences(
    shard: PlannedShard,
    plan: PackPlan | StreamPlan,
    source: Source | StreamedSource,
    others: Iterable[PlannedShard] = (),
) -> list[str]:
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
    if isinstance(plan, StreamPlan) or is_streamed(source) or "stream" in before:
        return [*words, *_stream_differences(before, now)] or ["they were packed by another version of fastio"]
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


def _stream_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How the records of two plans differ, of which one at least is that of a stream."""
    if not {"stream"} <= before.keys() & now.keys():
        return ["samples of text are streamed, others are not: it is another kind of source"]
    first, second = before["stream"], now["stream"]
    words = [what for name, what in _OF_STREAMS.items() if first.get(name) != second.get(name)]
    if first["bytes"] != second["bytes"]:
        words.append(f"files had together {first['bytes']:,} bytes, now {second['bytes']:,}")
    elif first["sizes"] != second["sizes"]:
        words.append("files have other sizes")
    if before["schema"] != now["schema"] and not words:
        words.append(_OTHERS["schema"])
    return words


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
    start, stop, data = shard.plan["first"], shard.plan["stop"], shard.shard
    is_known = shard.plan.get("pictures") is None and not shard.packed["skipped"]
    if not is_known or stop - start != data.count:
        return ""  # its sizes are not those of the source
    scanned = source.scanned(range(start, stop))
    before = np.sum([_value_sizes(data, each.name) for each in data.schema.payload], axis=0)
    other = np.flatnonzero(before != scanned.sizes)
    if not len(other) or len(other) == len(before):  # if all differ, they may count other bytes than the source does
        return ""
    first = int(other[0])
    return f"{shown(scanned.keys[first])!r} had {before[first]:,} bytes, now {scanned.sizes[first]:,}"


def _first_other_content(shard: PlannedShard, source: Source) -> str:
    """The first sample of a shard that has another checksum in the source; empty as for ``_first_other_size``."""
    start, stop, data = shard.plan["first"], shard.plan["stop"], shard.shard
    is_known = shard.plan.get("pictures") is None and not shard.packed["skipped"]
    if not is_known or stop - start != data.count:
        return ""
    scanned = source.scanned(range(start, stop))
    before = joined_checksums([_value_checksums(data, each.name) for each in data.schema.payload])
    if before is None or scanned.checksums is None:
        return ""
    other = np.flatnonzero(before != scanned.checksums)
    if not len(other) or len(other) == len(before):  # if all differ, they may be of other bytes than the source's
        return ""
    return repr(shown(scanned.keys[int(other[0])]))


def _value_sizes(shard: Shard, name: str) -> NDArray[np.int64]:
    """The bytes of each sample in a payload field, of a list those of all its elements."""
    sizes, counts = shard.sizes[name], shard.counts.get(name)
    return sizes if counts is None else sums_of(firsts_of(counts), sizes)


def _value_checksums(shard: Shard, name: str) -> NDArray[np.uint32] | None:
    """The checksum of each sample in a payload field; None if there are none."""
    checksums, counts = shard.checksums.get(name), shard.counts.get(name)
    return checksums if checksums is None or counts is None else list_checksums(checksums, counts.astype(np.int64))


def _keys(shard: PlannedShard) -> list[str]:
    data = shard.shard
    return data.keys.joined(0, data.count).decode("utf-8", "surrogatepass").split("\0") if data.count else []


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
    "divided": ("a shard is full", lambda value: f"by the bytes of its {value}"),
    "jump": ("--jump", _jump),
    "jump_from": ("start points for JPEGs from", _least_bytes),
}
_OF_STREAMS = {
    "tokenizer": "the tokenizer, or the rule for sequences, is another one",
    "source": "the text is read otherwise (its name, --document, --text-column, --label-column, --max-document)",
    "files": "files have other names",
    "classes": "the classes differ",
    "problems": "other files cannot be packed",
}
_OTHERS = {
    "schema": "fields or their types differ",
    "metadata": "classes, or what else is known of the source, differ (its name, label file, --shuffle, tokenizer, or "
    "the function that computes it and what that was made with, unless it has a version)",
    "problems": "other files are left out, or cannot be packed",
}
