"""The protocols of a packed container: SampleStore for reading and SampleWriter for writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastio._native import TRUNCATED, ThreadPool
from fastio.errors import StoreError
from fastio.store.files import Fetched, Prefetch, StoreFiles
from fastio.types.schema import Schema
from fastio.types.spans import ListSpans, Spans, firsts_of

if TYPE_CHECKING:
    from fastio.store.index.elements import Elements
    from fastio.store.index.far_points import FarSpans

__all__ = [
    "IN_PLACE",
    "SampleBatch",
    "SampleStore",
    "SampleWriter",
    "all_fetched",
    "extents",
    "located",
    "read_lists",
    "read_values",
    "stretches",
    "value_spans",
]


IN_PLACE = "files"  # the format of a store of files that stay where they lie; none in FORMATS


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """
    Encoded samples on their way into a writer.

    ``spans`` holds the bytes of each payload field without lists, ``lists`` those of each field of lists, ``columns``
    the values of each column ``(n, *shape)``, ``shapes`` for each image field the height, width and channels as stored,
    ``(n, 3)`` int32 (a missing entry means unknown: the reader probes). ``keys`` are source paths.
    """

    keys: Sequence[str]
    spans: Mapping[str, Spans]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    shapes: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    lists: Mapping[str, ListSpans] = field(default_factory=dict)

    def at(self, positions: NDArray[np.int64]) -> SampleBatch:
        """Return the samples at these positions."""
        return SampleBatch(
            keys=[self.keys[i] for i in positions.tolist()],
            spans={name: spans.at(positions) for name, spans in self.spans.items()},
            columns={name: column[positions] for name, column in self.columns.items()},
            shapes={name: shapes[positions] for name, shapes in self.shapes.items()},
            lists={name: lists.at(positions) for name, lists in self.lists.items()},
        )


class SampleStore(Protocol):
    """
    A packed dataset opened for reading.

    Immutable, safe to share between threads and over a fork, pickled by path. Opening verifies the seal and the
    header. The index is compared with its checksums where it is touched, a small one at opening: every method that
    looks at it may raise StoreCorrupt, which names what is damaged. Samples are compared when they are read.
    """

    @property
    def path(self) -> str:
        """The path or pattern that it was opened by."""
        ...

    @property
    def format(self) -> str:
        """The format's name in FORMATS, or IN_PLACE."""
        ...

    @property
    def schema(self) -> Schema:
        """The fields of a sample, with their types."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON: "classes", "source", "skipped" (list of {"key", "problem"}), ..."""
        ...

    @property
    def shard_paths(self) -> Sequence[str]:
        """The path of each file, in order."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        ...

    @property
    def identity(self) -> int:
        """
        A number that identifies the content, whatever its path, from each file's count, size and seal (foreign shards
        have none).
        """
        ...

    @property
    def files(self) -> StoreFiles:
        """What brings spans of this store into memory."""
        ...

    def __len__(self) -> int: ...

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """Return the source paths of these samples."""
        ...

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """
        Where a payload field's bytes lie; ``files.fetch`` brings them into memory. Faster without checksums.

        Raises IndexError for an index outside 0..len-1, and SchemaError for a field of lists: see ``elements``.
        """
        ...

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: ThreadPool, *, checksums: bool = True
    ) -> Prefetch | None:
        """
        Begin to read what ``spans`` with the same arguments will look at of the index, and to compare it, in a thread
        of ``pool``, or to fetch it where it is far; None where nothing is left to do. ``spans`` alone raises damage.
        """
        ...

    def far_points(self, field: str, indices: NDArray[np.int64]) -> FarSpans | None:
        """
        Return where start points of these pictures lie that do not come with ``spans`` before somebody has read them
        ahead; None where all do, or there are none.
        """
        ...

    def elements(self, field: str) -> Elements:
        """
        Return the elements of a field of lists, those of all samples, as a store of their own.

        Raises SchemaError for another field, and for stores that have no lists.
        """
        ...

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """
        Return the bytes of every value of a payload field as stored, ``(len,)``, read-only: no copy of the index.

        Of a field of lists, those of all elements of each sample, added.
        """
        ...

    def total_bytes(self, field: str) -> int:
        """Return the bytes of all values of a payload field as stored; of a large store, its index says it."""
        ...

    def column(self, field: str) -> NDArray[Any]:
        """Return a column, ``(len, *shape)``, read-only."""
        ...

    def shapes(self, field: str) -> NDArray[np.int32]:
        """
        Return ``(len, 3)``: height, width, channels of an image field as stored; zeros if unknown.

        Of a field of arrays that differ in other sizes than the first, ``(len, axes)``: their shapes.
        """
        ...

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """
        Return the number that an epoch of all samples should give, 0 to 2**64 - 1; None if there are no checksums.

        It is the sum over the payload fields, all or these: see Receipt.
        """
        ...

    def check_index(self) -> None:
        """Compare the whole index with its checksums now, not where it is touched first. Raises StoreCorrupt."""
        ...

    def close(self) -> None:
        """Let the files go; twice does no harm. Arrays handed out stay valid, and spans of mapped files."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SampleWriter(Protocol):
    """
    Writes one store, which nobody can open before ``close`` has written its end: a file gets its name then, a set its
    set object, while its shards have their names as they fill.

    As a context manager, it aborts on an exception and otherwise closes at the end of the block.
    """

    def append(self, batch: SampleBatch) -> None:
        """Add samples in order. Raises SchemaError if the batch does not fit the schema."""
        ...

    def close(self, metadata: Mapping[str, Any] | None = None) -> None:
        """Write index and seal, sync, and name the store. ``metadata`` is JSON kept in it."""
        ...

    def abort(self) -> None:
        """Remove everything written so far; does nothing after close."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Located(NamedTuple):
    """
    Where the values of a payload field of some samples are: the store ``values`` has them at ``indices``. Of a field of
    lists, ``values`` is a store of its elements, and each of the samples has so many of them as ``counts`` says; None
    of another field.
    """

    values: SampleStore
    indices: NDArray[np.int64]
    counts: NDArray[np.int64] | None


def located(store: SampleStore, field: str, indices: NDArray[np.int64]) -> Located:
    """Return whose values those of a payload field are, for these samples."""
    if not store.schema[field].is_list:
        return Located(store, indices, None)
    elements = store.elements(field)
    return Located(elements, *elements.of(np.asarray(indices, np.int64)))


def value_spans(
    store: SampleStore, field: str, indices: NDArray[np.int64], *, checksums: bool = True
) -> tuple[Spans, NDArray[np.int64] | None]:
    """
    Return where the values of a payload field lie, and of a field of lists those of all elements with how many each of
    these samples has; None for others.
    """
    values, which, counts = located(store, field, indices)
    return values.spans(field, which, checksums=checksums), counts


def extents(store: SampleStore, field: str, indices: NDArray[np.int64]) -> Spans:
    """
    Return one run of bytes for each of these samples, for reading ahead: its value, or from the first element of its
    list to the end of the last one, with what lies between; without checksums.
    """
    spans, counts = value_spans(store, field, indices, checksums=False)
    if counts is None:
        return spans
    if not len(spans):
        none = np.zeros(len(counts), np.int64)
        return Spans(spans.buffers, none.astype(np.int32), none, none)
    firsts = firsts_of(counts)
    first, last = np.minimum(firsts[:-1], len(spans) - 1), np.maximum(firsts[1:] - 1, 0)
    sizes = np.where(counts > 0, spans.starts[last] + spans.sizes[last] - spans.starts[first], 0)
    return Spans(spans.buffers, spans.shard[first], spans.starts[first], sizes)


_LOOKED_UP = 1 << 16  # values at a time, at most


def stretches(store: SampleStore, field: str, start: int, stop: int, *, most: int) -> Iterator[Spans]:
    """
    Yield the bytes of the values ``start`` up to ``stop`` of a field, for reading ahead: as one span from the first to
    the end of the last where that is a stretch of one file of at most ``most`` bytes, else as the runs of all values.
    """
    ends = store.spans(field, np.array([start, stop - 1], np.int64), checksums=False)
    size = int(ends.starts[1] + ends.sizes[1] - ends.starts[0])
    if ends.shard[0] == ends.shard[1] and 0 <= size <= most:
        yield Spans(ends.buffers, ends.shard[:1], ends.starts[:1], np.array([size], np.int64))
    elif stop - start <= _LOOKED_UP:
        yield store.spans(field, np.arange(start, stop, dtype=np.int64), checksums=False).runs()
    else:
        middle = (start + stop) // 2
        yield from stretches(store, field, start, middle, most=most)
        yield from stretches(store, field, middle, stop, most=most)


# The values of some samples in memory, for those who need all of them: converting, comparing, showing.


def read_values(store: SampleStore, field: str, indices: NDArray[np.int64]) -> Spans:
    """
    The values of a payload field, as spans over memory: that of mapped files, or copies.

    Raises StoreError with the name of the first sample that cannot be read.
    """
    return all_fetched(store, field, indices, store.files.fetch(store.spans(field, indices)))


def read_lists(store: SampleStore, field: str, indices: NDArray[np.int64]) -> ListSpans:
    """As ``read_values``, of a field of lists."""
    values, which, counts = located(store, field, indices)
    assert counts is not None, "a field of lists"
    return ListSpans(read_values(values, field, which), counts)


def all_fetched(store: SampleStore, field: str, indices: NDArray[np.int64], fetched: Fetched) -> Spans:
    """Wait for these values. Raises StoreError with the name of the first sample that cannot be read."""
    spans, status = fetched.wait()
    if status is None:
        return spans
    position = int(status.astype(bool).argmax())
    index = int(indices[position])
    stored = store.spans(field, np.array([index]))
    path, reason = store.shard_paths[int(stored.shard[0])], store.files.failure(stored)
    problem = "the file ends before it" if status[position] == TRUNCATED else "the disk or a server reports an error"
    remedy = "copy the file again" if reason is None else "try again"
    raise StoreError(
        f"{path}[{index}] ({store.keys([index])[0]!r}), field {field!r}: cannot be read: {reason or problem}; {remedy}"
    )
