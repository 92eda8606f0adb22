"""ListedSource, the base of a source: samples listed with their sizes, and one function that reads some of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import Headers
from fastio.converters.fields.problems import list_problems, mask_size_problems, row_problems
from fastio.converters.pictures.probe import header_problems, probe
from fastio.converters.sources.source import Chunk, Scanned, begin_check, split_by_bytes
from fastio.samplers.order import full_order
from fastio.store.files import StoreFiles
from fastio.store.kinds.scan import Problem
from fastio.store.protocol import SampleBatch, SampleStore, all_fetched, located
from fastio.types.picture_kinds import PICTURE_KINDS, UNKNOWN, kinds_by_name
from fastio.types.schema import Field, Schema, are_plain_paths, is_plain_path
from fastio.types.spans import ListSpans, Spans

__all__ = [
    "Indices",
    "ListedSource",
    "Placer",
    "Read",
    "Values",
    "begin_in_place",
    "names_at",
    "parts_of",
    "read_stored",
    "read_together",
]


Indices = NDArray[np.int64]

_NO_PATH = (
    "has a key that is not a path below a folder (it is absolute, or has an empty part, '.' or '..' in it), so that "
    "unpack would refuse the store; rename it"
)


@dataclass(frozen=True, slots=True)
class Values:
    """
    The encoded values of some samples: one run of bytes for each sample and payload field, or ``lists`` of a field of
    lists.

    ``columns`` holds the columns that are known only after reading, ``(n, *shape)`` each. ``problems`` says what is
    wrong with a sample, by position; its bytes then do not matter.

    Only ``Placer.places`` fills in ``files``, ``planar`` and ``unfit``. ``files`` are the paths of the files that the
    spans of a field are bytes of: ``shard`` counts these, ``starts`` are places in them, ``buffers`` is not looked at.
    Fields in ``planar`` are raw pictures whose channels lie there one behind the other, which packing makes last.
    ``unfit`` says why the values of a field do not lie in files as packing gives them, in words that follow "its
    values".
    """

    spans: Mapping[str, Spans]
    problems: Mapping[int, str] = field(default_factory=dict)
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    planar: Collection[str] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, ListSpans] = field(default_factory=dict)


# Begins to read the samples at these indices on a pool of native threads (without one: at once). The function that it
# returns waits until they are there. Whoever has the values gives a method of its own: what is read in place is asked
# whose it is, and that one is a Placer if the values lie in containers.
Read = Callable[[Indices, _native.ThreadPool | None], Callable[[], Values]]


@runtime_checkable
class Placer(Protocol):
    """
    Whoever has values that lie in files of other programs, each in one piece, as packing would give them, or, raw
    pictures, with their channels first.
    """

    def places(self, indices: Indices, *, check: bool) -> Values:
        """
        Return what reading these samples gives: the same fields, bytes (but for ``planar``), columns and problems.

        Fields in ``files`` are not read: their spans say where the bytes lie, with the CRC-32 of each value if the
        container has it. A field lies in files for all samples or for none; ``unfit`` has the reason. With ``check``,
        checksums of another kind that the container has are compared, too: samples that differ are problems.
        """
        ...


@dataclass(frozen=True, slots=True)
class ListedSource:
    """
    A list of samples, and a function that reads some of them. Satisfies ``Source``.

    A kind of source fills in the fields. ``sizes`` (n,) holds the bytes of each sample, over all payload fields.
    ``keys_at(indices)`` returns the keys of samples, ``columns`` are arrays with one row per sample (``read`` provides
    those that are missing), and ``read`` is described above. ``order`` holds the indices of the samples to pack, in
    order; None packs all of them as listed. Set ``is_by_name=False`` if that order depends on anything but names, and
    ``is_stored=True`` if samples are those of a store that fastio packed: they are copied, whatever a newer version
    would refuse in their keys, masks, boxes and points, and also if the data of a picture end too early.
    ``header_check(indices, headers)`` says what else is wrong with pictures of the first field, by position: a source
    that knows their sizes compares them there. ``paths()`` returns the files that samples are read from; None means
    that ``path`` is the only one. ``listed`` are the folders that were looked into for them, see ``Folder``.
    ``checksums_at(indices)`` returns the checksums that the source carries, without
    reading samples, see ``Scanned``; None if it has none. ``place_at(index, field)`` says where in its file a picture
    that turns out to be damaged stands, "" if its key says it all.

    This class does the rest: it cuts the list into pieces, shuffles it, checks that keys are paths that ``unpack`` can
    write, reads the headers of pictures (they give each picture its size; anything else is a problem), compares masks
    with these sizes, checks the rows of boxes and points, and finds names that promise another kind of picture.
    """

    path: str
    kind: str
    schema: Schema
    metadata: Mapping[str, Any]
    keys_at: Callable[[Indices], list[str]]
    sizes: NDArray[np.int64]
    read: Read
    disk_bytes: int
    files_opened: int
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    left_out: Sequence[Problem] = ()
    order: Indices | None = None
    is_by_name: bool = True
    is_stored: bool = False
    header_check: Callable[[Indices, Headers], Mapping[int, str]] | None = None
    paths: Callable[[], Iterable[str]] | None = None
    listed: Mapping[str, int] = field(default_factory=dict)
    checksums_at: Callable[[Indices], NDArray[np.uint32] | None] | None = None
    place_at: Callable[[int, str], str] | None = None

    def __post_init__(self) -> None:
        for name in ("problems", "left_out"):
            object.__setattr__(self, name, sorted(getattr(self, name), key=attrgetter("key")))

    @property
    def indices(self) -> Indices:
        """The indices of the samples to pack, in order."""
        return np.arange(len(self.sizes)) if self.order is None else self.order

    @property
    def keys(self) -> list[str]:
        """The keys of the samples to pack."""
        return self.keys_at(self.indices)

    @property
    def size_bytes(self) -> int:
        """The bytes of all samples."""
        return int(self.sizes[self.indices].sum())

    def files(self) -> Iterable[str]:
        """Return the files that samples are read from; see ``Source``."""
        return [self.path] if self.paths is None else self.paths()

    def __len__(self) -> int:
        return len(self.indices) + len(self.problems)

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        """Return the samples that are not already problems, in pieces; see ``Source``."""
        return split_by_bytes(self.sizes[self.indices], max_bytes, max_samples)

    def scanned(self, chunk: range) -> Scanned:
        """Return keys, sizes, columns and checksums of some samples; see ``Source``."""
        indices = self._at(chunk)
        columns = {name: column[indices] for name, column in self.columns.items()}
        checksums = None if self.checksums_at is None else self.checksums_at(indices)
        return Scanned(self.keys_at(indices), self.sizes[indices], columns, checksums)

    def shuffled(self, seed: int) -> ListedSource:
        """Return the same samples in an order that depends only on their names and the seed."""
        indices = self.indices
        if not self.is_by_name:
            indices = indices[np.array(self.keys, object).argsort(kind="stable")]
        order = indices[full_order(len(indices), seed=seed, epoch=0)]
        return replace(self, order=order, metadata={**self.metadata, "shuffle": seed})

    def begin(self, chunk: range, pool: _native.ThreadPool | None = None) -> Callable[[], Chunk]:
        """Begin to read one piece; see ``Source``."""
        indices = self._at(chunk)
        finish = self.read(indices, pool)
        return lambda: self._chunk(indices, finish())

    def _at(self, chunk: range) -> Indices:
        """The indices of the samples of a piece."""
        return np.arange(chunk.start, chunk.stop) if self.order is None else self.order[chunk.start : chunk.stop]

    def _chunk(self, indices: Indices, values: Values) -> Chunk:
        """
        Return the good samples as a batch, and a problem for each of the others.

        Headers are read in this thread: on the pool they would wait behind the reading ahead.
        """
        keys = self.keys_at(indices)
        problems, misnamed = dict(values.problems), dict[int, str]()
        if not self.is_stored and not are_plain_paths(keys):
            problems |= {i: _NO_PATH for i, key in enumerate(keys) if not is_plain_path(key)}
        shapes: dict[str, NDArray[np.int32]] = {}
        for number, each in enumerate(self.schema.payload):
            if not each.traits.is_picture:
                continue
            headers = _headers(values.spans[each.name], each, values.problems, check_end=not self.is_stored)
            shapes[each.name] = np.ascontiguousarray(headers.shapes)
            for i, sentence in header_problems(headers, each).items():
                place = "" if self.place_at is None else self.place_at(int(indices[i]), each.name)
                words = f"has a value in {place} that {sentence}" if place else f"field {each.name!r} {sentence}"
                problems.setdefault(i, words if place or number else sentence)
            if number == 0:  # keys are the names of the first field's files
                misnamed = _misnamed(keys, headers)
                if self.header_check is not None:
                    problems = {**self.header_check(indices, headers), **problems}
        lists = dict(values.lists)
        for each in self.schema.lists:
            lists[each.name], bad = self._sized(each, lists[each.name], values.problems)
            for i, sentence in bad.items():
                problems.setdefault(i, f"has a field {each.name!r} that {sentence}")
        checked = row_problems(self.schema, values.spans, values.problems, with_numbers=not self.is_stored)
        if not self.is_stored:
            checked = {**mask_size_problems(self.schema, shapes), **checked}
        for i, (_, sentence) in checked.items():
            problems.setdefault(i, sentence)
        columns = {**{name: column[indices] for name, column in self.columns.items()}, **values.columns}
        batch = SampleBatch(keys, values.spans, columns, shapes, lists)
        if problems:
            batch = batch.at(_without(len(keys), problems))
        odd = {i: sentence for i, sentence in misnamed.items() if i not in problems}
        return Chunk(batch, _named(keys, problems), _named(keys, odd))

    def _sized(
        self, field: Field, lists: ListSpans, problems: Mapping[int, str]
    ) -> tuple[ListSpans, Mapping[int, str]]:
        """Return lists with the sizes of their pictures, and what is wrong with those of samples without a problem."""
        if not field.element.traits.is_picture:
            return lists, {}
        wrong = np.isin(lists.owners, np.fromiter(problems, np.int64, len(problems)))
        unread = dict.fromkeys(np.flatnonzero(wrong).tolist(), "")
        headers = _headers(lists.spans, field.element, unread, check_end=not self.is_stored)
        bad = {i: words for i, words in header_problems(headers, field.element).items() if not wrong[i]}
        return replace(lists, shapes=np.ascontiguousarray(headers.shapes)), list_problems(
            lists.counts, bad, is_optional=field.is_optional
        )


def names_at(names: Sequence[str]) -> Callable[[Indices], list[str]]:
    """``ListedSource.keys_at`` for keys that are in memory."""

    def keys_at(indices: Indices) -> list[str]:
        start, count = int(indices[0]) if len(indices) else 0, len(indices)
        if np.array_equal(indices, np.arange(start, start + count)):  # as listed: a slice takes a tenth of the time
            return list(names[start : start + count])
        return [names[i] for i in indices.tolist()]

    return keys_at


def read_stored(store: SampleStore, fields: Sequence[str]) -> Read:
    """
    Make a ``ListedSource.read`` for the payload fields of a store.

    Native threads read ahead and compare the values with their checksums, if they have any: damaged values must not
    get a new checksum that says they are right.
    """
    files = store.files

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        asked = {name: located(store, name, indices) for name in fields}
        spans = {name: each.values.spans(name, each.indices) for name, each in asked.items()}
        jobs = [files.read_ahead(each, pool=pool) for each in spans.values()]
        fetched = {name: files.fetch(each, pool=pool, is_near=True) for name, each in spans.items()}

        def checked() -> dict[str, tuple[Spans, Callable[[], NDArray[np.int64]]]]:
            there = {name: all_fetched(each.values, name, each.indices, fetched[name]) for name, each in asked.items()}
            return {name: (each, begin_check(each, pool)) for name, each in there.items()}

        begun = checked() if files.in_place else None  # otherwise their bytes are still on their way

        def finish() -> Values:
            for job in jobs:
                job.wait()
            checks = checked() if begun is None else begun
            single, lists, problems = dict[str, Spans](), dict[str, ListSpans](), dict[int, str]()
            for name, (read, damaged) in checks.items():
                counts = asked[name].counts
                bad = dict.fromkeys(damaged().tolist(), "differs from its checksum")
                if counts is None:
                    single[name] = read
                else:
                    lists[name] = ListSpans(read, counts)
                    bad = list_problems(counts, bad, is_optional=store.schema[name].is_optional)
                for i, words in bad.items():
                    problems.setdefault(i, f"has a field {name!r} that {words}")
            return Values(single, problems, lists=lists)

        return finish

    return begin


def _headers(spans: Spans, field: Field, problems: Mapping[int, str], *, check_end: bool) -> Headers:
    """What ``probe`` says of pictures; zeros for those that have a problem already."""
    if not problems:
        return probe(spans, field, check_end=check_end)
    good = _without(len(spans), problems)
    return probe(spans.at(good), field, check_end=check_end).among(len(spans), good)


def _without(count: int, problems: Mapping[int, str]) -> Indices:
    """The positions below ``count`` that have no problem."""
    return np.setdiff1d(np.arange(count), np.fromiter(problems, np.int64, len(problems)), assume_unique=True)


def _misnamed(keys: Sequence[str], headers: Headers) -> dict[int, str]:
    """Pictures that are of another kind than the extensions of their names say, by their positions."""
    promised = np.array(kinds_by_name(keys), np.int32)
    odd = (promised != UNKNOWN) & (headers.kind != UNKNOWN) & (promised != headers.kind)
    return {
        i: f"is {PICTURE_KINDS[headers[i].kind]} under the name of {PICTURE_KINDS[promised[i]]} "
        f"({keys[i][keys[i].rfind('.') :]})"
        for i in np.flatnonzero(odd).tolist()
    }


def _named(keys: Sequence[str], sentences: Mapping[int, str]) -> list[Problem]:
    return [Problem(keys[i], sentences[i]) for i in sorted(sentences)]


# Reads the parts of a sample that lie in different places, such as files and a table, as one.


def read_together(reads: Sequence[Read]) -> Read:
    """
    Return a ``Read`` that begins all of these at once and waits for each.

    Each brings fields of its own. A sample with problems in several of them has that of the first.
    """
    return reads[0] if len(reads) == 1 else _Together(tuple(reads)).begin


def parts_of(read: Read) -> Sequence[Read]:
    """
    Return what ``read_together`` made one of, or the function alone; of an owner with ``reads`` of its own, these, each
    of which brings other fields.
    """
    return getattr(getattr(read, "__self__", None), "reads", (read,))


@dataclass(frozen=True, slots=True)
class _Together:
    """Functions that read other fields of the same samples."""

    reads: tuple[Read, ...]

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        waits = [read(indices, pool) for read in self.reads]

        def finish() -> Values:
            parts = [wait() for wait in waits]
            problems: dict[int, str] = {}
            for part in reversed(parts):
                problems |= part.problems
            return Values(
                {name: spans for part in parts for name, spans in part.spans.items()},
                problems,
                {name: column for part in parts for name, column in part.columns.items()},
                lists={name: lists for part in parts for name, lists in part.lists.items()},
            )

        return finish


# Values that lie in the file of a container as they are: read ahead natively, and used where they lie.


def begin_in_place(
    files: StoreFiles,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    pool: _native.ThreadPool | None,
    *,
    checksums: NDArray[np.uint32] | None = None,
) -> Callable[[], tuple[Spans, list[int]]]:
    """
    Begin to read the values that are ``sizes[i]`` bytes from ``starts[i]`` on in the only file of ``files``.

    Returns a function that waits, and returns the values and the positions of those that cannot be read. ``checksums``
    go with the values; nothing is compared with them here.
    """
    spans = Spans(files.buffers, np.zeros(len(starts), np.int32), starts, sizes, checksums)
    job = files.read_ahead(spans, pool=pool)
    fetched = files.fetch(spans, pool=pool, is_near=True)

    def finish() -> tuple[Spans, list[int]]:
        job.wait()
        there, status = fetched.wait()
        return there, [] if status is None else np.flatnonzero(status).tolist()

    return finish
