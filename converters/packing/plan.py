"""PackPlan: a source divided into shards before anything is packed."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio.converters.packing.pipeline import stages_of
from fastio.converters.packing.record import source_metadata
from fastio.converters.pictures.jumps import has_jumps
from fastio.converters.pictures.raw import Raw
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.source import Scanned, Source, Stage, StreamedSource
from fastio.errors import SchemaError
from fastio.store import Format
from fastio.store.jump_tables import JumpRule
from fastio.store.kinds.scan import shown
from fastio.store.sets.set_object import SetMember
from fastio.store.write.atomic import writing
from fastio.store.write.keys import UniqueKeys
from fastio.types.schema import Schema

__all__ = ["PackPlan", "StreamPlan", "plan_of", "plan_of_stream"]


_VERSION = 1  # of the division, and of all bytes that a shard takes from its plan
_BLOCK = 1 << 16  # samples that are hashed at once


@dataclass(frozen=True, slots=True)
class PackPlan:
    """
    The division of one source into shards: shard k holds the samples ``cuts[k]`` to ``cuts[k + 1]`` of the source, in
    its order, and is the same bytes whoever packs it, whenever, with however many threads.

    ``digest``, 64 bits and never 0, covers all that these bytes depend on and that is known without reading: keys,
    sizes, columns, problems and metadata of the source, its order, the schema, what is done to pictures, the format and
    the size of shards. It does not depend on paths, times, the machine or the number of threads. ``record`` is what
    each shard keeps to say what differs from another plan. Its "contents", a hash over the checksums of all samples if
    the source carries some, is not in the digest, which is that of older shards without it: see ``has_contents_of``.
    Otherwise a file whose content changes while name and size stay is not noticed.
    """

    digest: int
    cuts: NDArray[np.int64]
    schema: Schema  # of the shards
    record: Mapping[str, Any]
    stages: Callable[[], Stage] | None = field(compare=False)  # makes the stage of one shard
    jump: JumpRule | None = None  # which pictures of the shards get start points

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self.cuts) - 1

    @property
    def count(self) -> int:
        """How many shards there are."""
        return len(self)

    def listed(self, members: Sequence[SetMember]) -> int:
        """Return how many of the last members of a set are the shards of this plan: all of them, or none."""
        last = members[-len(self) :]
        return len(self) if len(last) == len(self) and all(member.plan == self.digest for member in last) else 0

    @property
    def samples(self) -> int:
        """How many samples of the source are to be read, good or bad."""
        return int(self.cuts[-1])

    def samples_of(self, number: int) -> range:
        """Return the samples of one shard."""
        return range(int(self.cuts[number]), int(self.cuts[number + 1]))

    def with_jump(self, rule: JumpRule | None) -> PackPlan:
        """Return the plan that is the same but for the start points, if the shards have pictures that may have some."""
        outside = {name: self.record[name] for name in ("shards", "contents") if name in self.record}
        kept = {name: value for name, value in self.record.items() if name not in (*outside, *JumpRule().to_json())}
        rule = rule if has_jumps(self.schema) else None
        record = {**kept, **({} if rule is None else rule.to_json())}
        digest = int(_json_hash(record), 16) or 1
        return replace(self, digest=digest, record={**record, **outside}, jump=rule)

    def with_contents(self, contents: str | None) -> PackPlan:
        """Return the plan whose shards say these "contents" of the source; None: none, as older ones do."""
        kept = {name: value for name, value in self.record.items() if name != "contents"}
        return replace(self, record=kept if contents is None else {**kept, "contents": contents})

    def has_contents_of(self, record: Mapping[str, Any]) -> bool:
        """Whether a shard with such a record has the same contents, as far as both of them tell."""
        return self.record.get("contents") in (None, record.get("contents")) or "contents" not in record


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """
    The division of a stream into shards, which is known when its samples are: a shard is full if the next sample would
    make it larger than ``shard_bytes``.

    ``by_text`` says that shards are full by the bytes of the text that they are made of instead, and hold whole pieces
    of the stream. So parts know which pieces are theirs before they make samples of them.

    ``digest`` covers all that the shards depend on and that is known without reading, as that of ``PackPlan``.
    """

    digest: int
    schema: Schema
    record: Mapping[str, Any]
    shard_bytes: int
    by_text: bool
    count: None = None  # how many shards there are
    jump: None = None

    def divided(self, *, by_text: bool) -> StreamPlan:
        """Return the plan that is the same but for its division."""
        record = {**self.record, "divided": "text" if by_text else "samples"}
        return replace(self, digest=int(_json_hash(record), 16) or 1, record=record, by_text=by_text)

    def listed(self, members: Sequence[SetMember]) -> int:
        """Return how many of the last members of a set are shards of this plan; a set has all of them or none."""
        others = (number for number, member in enumerate(reversed(members)) if member.plan != self.digest)
        return next(others, len(members))

    def has_contents_of(self, record: Mapping[str, Any]) -> bool:
        """As for ``PackPlan``; a stream has no checksums that could differ."""
        del record
        return True


def plan_of_stream(source: StreamedSource, form: Format, *, shard_bytes: int, by_text: bool) -> StreamPlan:
    """Return how ``source`` is divided into shards of up to ``shard_bytes``, or a single larger sample or piece."""
    record = {
        "version": _VERSION,
        "format": form.name,
        "shard_size": shard_bytes,
        "schema": source.schema.to_json(),
        "pictures": None,
        "stream": source.identity,
    }
    if form.layout(source.schema):
        record["layout"] = form.layout(source.schema)
    return StreamPlan(0, source.schema, record, shard_bytes, by_text).divided(by_text=by_text)


def plan_of(
    source: Source,
    form: Format,
    *,
    shard_bytes: int,
    pictures: Transcode | Raw | None = None,
    beside: str | None = None,
) -> PackPlan:
    """
    Divide ``source`` into shards of up to ``shard_bytes``, by the sizes of its samples as the container ``form`` takes
    them, or a single larger sample.

    Pictures that are made smaller count as they are in the source, those that are decoded by their pixels. No
    picture gets start points; see ``PackPlan.with_jump``. Memory does not grow with the source; a temporary file lies
    ``beside`` the target (None: in TMPDIR). Raises SchemaError if a key comes twice.
    """
    stages = None if pictures is None else stages_of(pictures, source)
    schema = source.schema if stages is None else stages().schema(source.schema)
    hashes = {"keys": _Hash(), "sizes": _Hash()}
    contents = _Hash()
    has_checksums = True
    total_bytes = 0
    cuts = _Cuts(shard_bytes)
    with _UniqueKeys(source, beside) as keys:
        for scanned in _blocks(source):
            joined = "\0".join(scanned.keys).encode("utf-8", "surrogatepass")
            keys.add(joined, len(scanned.keys))
            hashes["keys"].update(joined + b"\0")
            hashes["sizes"].update(scanned.sizes.astype("<i8").tobytes())
            for name, column in sorted(scanned.columns.items()):
                hashes.setdefault(f"column {name}", _Hash()).update(np.ascontiguousarray(column).tobytes())
            cuts.add(_container_bytes(form, schema, scanned.sizes))
            total_bytes += int(scanned.sizes.sum())
            has_checksums = has_checksums and scanned.checksums is not None
            if scanned.checksums is not None:
                contents.update(scanned.checksums.astype("<u4").tobytes())
        keys.require_unique()
    known = source_metadata(source)
    record = {
        "version": _VERSION,
        "format": form.name,
        "shard_size": shard_bytes,
        "schema": schema.to_json(),
        "pictures": None if pictures is None else pictures.to_json(),
        "samples": cuts.count,
        "bytes": total_bytes,
        "metadata": _json_hash(known["metadata"]),
        "problems": _json_hash([known["skipped"], known["left_aside"]]),
        **{name: hash_.hexdigest() for name, hash_ in hashes.items()},
    }
    if form.layout(schema):
        record["layout"] = form.layout(schema)
    digest = int(_json_hash(record), 16) or 1
    every = cuts.every()
    plan = PackPlan(digest, every, schema, {**record, "shards": len(every) - 1}, stages)
    return plan.with_contents(contents.hexdigest() if has_checksums and cuts.count else None)


class _Cuts:
    """Cuts samples into shards of up to ``shard_bytes``, or a single larger sample, as their costs come."""

    def __init__(self, shard_bytes: int) -> None:
        self.count = 0
        self._shard_bytes = shard_bytes
        self._cuts = [0]
        self._filled = 0  # by the samples behind the last cut

    def add(self, costs: NDArray[np.int64]) -> None:
        """Take what the next samples cost."""
        ends = np.cumsum(costs)
        start = done = 0
        while start < len(costs):
            room = self._shard_bytes - self._filled
            stop = int(np.searchsorted(ends, done + room, side="right"))
            if stop == start and self.count + start == self._cuts[-1]:
                stop += 1  # a sample larger than a shard
            if stop < len(costs):
                self._cuts.append(self.count + stop)
                self._filled = 0
            else:
                self._filled += int(ends[-1]) - done
            start, done = stop, int(ends[stop - 1]) if stop else 0
        self.count += len(costs)

    def every(self) -> NDArray[np.int64]:
        """Return where shards begin, and where the last one ends."""
        last = [self.count] if self.count > self._cuts[-1] else []
        return np.array([*self._cuts, *last], np.int64)


def _blocks(source: Source) -> Iterator[Scanned]:
    count = len(source) - len(source.problems)
    for start in range(0, count, _BLOCK):
        yield source.scanned(range(start, min(start + _BLOCK, count)))


def _container_bytes(form: Format, schema: Schema, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    What each sample takes in a shard. Only the sum of its values is known: the first field counts for all, and lists
    count as one value each.
    """
    if schema.lists:
        schema = Schema(tuple(each.element for each in schema.fields), is_per_sample=True)
    assert form.sample_bytes is not None, f"{form.name} has no shards"
    fixed = {each.name: each.nbytes for each in schema.payload if each.is_raw_picture}
    first = next((each.name for each in schema.payload if each.name not in fixed), "")
    nothing = np.zeros(len(sizes), np.int64)
    by_field = {each.name: sizes if each.name == first else nothing for each in schema.payload}
    by_field |= {name: np.full(len(sizes), size, np.int64) for name, size in fixed.items()}
    return form.sample_bytes(schema, by_field, len(sizes))


def _Hash() -> Any:  # noqa: N802 - stands for a class of hashlib
    return hashlib.blake2b(digest_size=8)


def _json_hash(data: Any) -> str:
    encoded = json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()


class _UniqueKeys:
    """Finds a key of a source that comes twice."""

    def __init__(self, source: Source, beside: str | None) -> None:
        self._source = source
        self._folder = tempfile.gettempdir() if beside is None else beside
        self._keys = UniqueKeys(self._earlier, beside=beside)
        self._count = 0

    def add(self, joined: bytes, count: int) -> None:
        """Take the next keys, joined by NUL. Raises SchemaError for one that is known to have been there before."""
        with writing(self._folder):
            twice = self._keys.add(joined)
        if twice is not None:
            raise self._repeated(joined.split(b"\0")[twice])
        self._count += count

    def require_unique(self) -> None:
        """Raise SchemaError if any key came twice."""
        with writing(self._folder):
            key = self._keys.repeated()
        if key is not None:
            raise self._repeated(key)

    def _earlier(self) -> Iterator[bytes]:
        for start in range(0, self._count, _BLOCK):
            keys = self._source.scanned(range(start, min(start + _BLOCK, self._count))).keys
            yield "\0".join(keys).encode("utf-8", "surrogatepass")

    def _repeated(self, key: bytes) -> SchemaError:
        name = key.decode("utf-8", "surrogatepass")
        return SchemaError(f"{shown(self._source.path)}: key {name!r} comes twice; keys must be unique: rename one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keys.close()
