"""Source, the protocol: an unpacked dataset that a packer reads in chunks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool
from fastio.converters.sources.places import Places
from fastio.machine import available_memory
from fastio.store.protocol import SampleBatch
from fastio.types.schema import Schema
from fastio.types.spans import Spans

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from fastio.store.kinds.scan import Problem

__all__ = [
    "LARGE_BYTES",
    "Chunk",
    "DocumentCounts",
    "PassedOn",
    "Scanned",
    "Source",
    "Stage",
    "StreamPiece",
    "StreamedSource",
    "TextCounts",
    "begin_check",
    "check_memory",
    "damaged",
    "is_streamed",
    "joined_checksums",
    "size_problem",
    "split_by_bytes",
]


_MULTIPLIER = 0x9E3779B1  # odd, so that no checksum is lost by it

Tag = TypeVar("Tag")  # what goes with a piece on its way


class TextCounts(NamedTuple):
    """How many texts became token ids, how many of them were truncated, and how many ids that took away."""

    documents: int
    cut_documents: int
    cut_tokens: int

    def within(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a tokenizer with these counts."""
        cut = {"documents": self.cut_documents, "tokens": self.cut_tokens}
        return {**record, "options": {**record["options"], "documents": self.documents, "cut": cut}}


class DocumentCounts(NamedTuple):
    """What became of documents of text. One of several pieces is packed as more than one sample."""

    documents: int  # packed
    samples: int
    tokens: int  # ids in the samples
    text_bytes: int  # UTF-8 of the documents packed
    blank_lines: int  # left out
    read_bytes: int  # of the files, as stored on disk
    cut_documents: int  # truncated
    cut_tokens: int  # lost by that
    split_documents: int
    probed_documents: int  # decoded again, to see whether that gives their text
    exact_documents: int  # of these, those that came back byte by byte
    loss_tokens: int = 0  # ids of chats that count in the loss

    @property
    def recorded(self) -> list[int]:
        """The numbers as shards keep them; the last is in those of chats alone."""
        return [*self] if self.loss_tokens else [*self[:-1]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """
    The result of one read of a source: samples in order, and those that could not be read.

    ``misnamed`` are samples of ``batch`` whose content is not what their names say. ``texts`` counts what became of
    text in fields of token ids, also in samples that are problems; None if there is no such field. ``documents`` does
    so for a source of text alone; ``blank_lines`` are the lines of its files that are left out, and ``cut`` the
    documents that lost ids, as ``places_of`` names them.
    """

    batch: SampleBatch
    problems: Sequence[Problem]
    misnamed: Sequence[Problem] = ()
    texts: TextCounts | None = None
    documents: DocumentCounts | None = None
    blank_lines: Places = field(default_factory=dict)
    cut: Places = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scanned:
    """
    What is known of some samples before they are read: ``sizes`` (n,) in bytes, over all payload fields, and those
    columns (n, ...) that reading does not bring. ``checksums`` (n,) are those that the source itself carries, see
    ``joined_checksums``; None if it has none.
    """

    keys: Sequence[str]
    sizes: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    checksums: NDArray[np.uint32] | None = None


def joined_checksums(by_field: Sequence[NDArray[np.uint32] | None]) -> NDArray[np.uint32] | None:
    """
    Return one checksum (n,) a sample from those of its payload fields, in their order: that of a single field itself.
    None if a field has none, or if there is no field.

    >>> joined_checksums([np.array([7, 8], np.uint32)])
    array([7, 8], dtype=uint32)
    """
    joined: NDArray[np.uint32] | None = None
    for each in by_field:
        if each is None:
            return None
        joined = each if joined is None else joined * np.uint32(_MULTIPLIER) ^ each
    return joined


class Stage(Protocol):
    """
    Changes samples between their source and the store, on native threads.

    One object is one run: chunks come in order, and so do their results.
    """

    @property
    def source_bytes(self) -> int:
        """Source bytes of everything passed on so far."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """JSON for the store: the options, and what was done."""
        ...

    def parts(self, chunk: Chunk, schema: Schema) -> Sequence[Chunk]:
        """Return the chunk in pieces, in order, none much larger than a chunk of a source."""
        ...

    def begin(self, chunk: Chunk, schema: Schema, pool: ThreadPool) -> Callable[[], Chunk]:
        """
        Begin to work on such a piece, of the source's ``schema``; the result waits for it and returns the new chunk.

        Damage that is found becomes a problem of the chunk.
        """
        ...

    def schema(self, source: Schema) -> Schema:
        """Return the schema of the results; known once a first chunk with samples has been begun."""
        ...


class ScannedSource(Protocol):
    """What is known of every source when it has been scanned, whether it is read in any order or as a stream."""

    @property
    def path(self) -> str:
        """The path as the user named it."""
        ...

    @property
    def schema(self) -> Schema:
        """What a sample consists of."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """Problems found while scanning (not in any chunk or piece), sorted by key."""
        ...

    @property
    def disk_bytes(self) -> int:
        """The space that the source takes on disk, in whole blocks."""
        ...

    @property
    def files_opened(self) -> int:
        """How many files are opened to read all of it."""
        ...


class PassedOn:
    """What a source that is made of another, ``source``, says of it unchanged."""

    __slots__ = ()

    source: Any

    @property
    def kind(self) -> str:
        """The name in SOURCES."""
        kind: str = self.source.kind
        return kind

    @property
    def problems(self) -> Sequence[Problem]:
        """Problems found while scanning."""
        problems: Sequence[Problem] = self.source.problems
        return problems

    @property
    def size_bytes(self) -> int:
        """The bytes of all files that will be read."""
        return int(self.source.size_bytes)

    @property
    def disk_bytes(self) -> int:
        """The space that the source takes on disk."""
        return int(self.source.disk_bytes)

    @property
    def files_opened(self) -> int:
        """How many files are read."""
        return int(self.source.files_opened)


class StreamedSource(ScannedSource, Protocol):
    """
    Samples that are read once from front to back, in an order that depends only on names; how many there are is known
    only at the end. They come in pieces, whose bounds depend on the source alone.
    """

    @property
    def kind(self) -> str:
        """The name in SOURCES."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON, as that of ``Source``; complete when everything has been read."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON: what the samples depend on and is known without reading. It does not depend on paths and times."""
        ...

    @property
    def left_out(self) -> Sequence[Problem]:
        """Files that are not samples, sorted by key."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes, as stored on disk, of all files that will be read."""
        ...

    def files(self) -> Iterable[str]:
        """Return the paths of the files that samples are read from."""
        ...

    def pieces(self, pool: ThreadPool | None = None) -> Iterator[StreamPiece]:
        """Yield the pieces in order. Raises SourceError if a file cannot be read further."""
        ...

    def encoded(self, pieces: Iterable[tuple[Tag, Any]], jobs: int) -> Generator[tuple[Tag, Chunk], None, None]:
        """Yield the samples of pieces in order, made by ``jobs`` threads; the tag of each piece goes with them."""
        ...

    def samples(self, pool: ThreadPool, jobs: int) -> Generator[Chunk, None, None]:
        """Yield all samples in order, made by ``jobs`` threads."""
        ...

    def renumbered(self, classes: Sequence[str], numbers: NDArray[np.int64]) -> StreamedSource:
        """Return the samples with ``classes`` as the names of labels, and ``numbers[label]`` in place of each label."""
        ...


class StreamPiece(Protocol):
    """What a stream yields before it is made into samples."""

    @property
    def text_bytes(self) -> int:
        """The bytes that the samples are made of."""
        ...

    @property
    def read_bytes(self) -> int:
        """How much of the files was read for it."""
        ...

    def checksum(self, before: int) -> int:
        """Return the CRC-32 of the content of this piece and of all pieces before it, whose CRC-32 is ``before``."""
        ...


def is_streamed(source: Source | StreamedSource) -> TypeIs[StreamedSource]:
    """Return whether the samples of a source are known only when they have been read."""
    return hasattr(source, "pieces")


class Source(ScannedSource, Protocol):
    """
    An unpacked dataset in an order that depends only on names.

    Building one scans only names (and sizes). ``len`` counts everything found that should be a sample, good or bad:
    it always equals packed + skipped.
    """

    @property
    def kind(self) -> str:
        """The name in SOURCES."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON: "classes" (list of names, or None), "source" (see ``source_record``)."""
        ...

    @property
    def left_out(self) -> Sequence[Problem]:
        """Files that are not samples (``junk``), and pictures that the user's filters leave out, sorted by key."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes of all samples that are not already problems."""
        ...

    @property
    def is_stored(self) -> bool:
        """Whether samples are those of a store that fastio packed: they are copied, also those with damage."""
        ...

    def files(self) -> Iterable[str]:
        """Return the paths or URLs of the files that samples are read from; nothing is looked at for that."""
        ...

    def __len__(self) -> int: ...

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        """Return the samples that are not already problems, cut into pieces of limited size."""
        ...

    def scanned(self, chunk: range) -> Scanned:
        """Return what is known of these samples, which are counted as by ``chunks``, without reading them."""
        ...

    def shuffled(self, seed: int) -> Source:
        """
        Return the same samples in an order that is a pure function of their names and the seed, recorded in the
        metadata.
        """
        ...

    def begin(self, chunk: range, pool: ThreadPool | None = None) -> Callable[[], Chunk]:
        """
        Begin to read one piece on the native threads of ``pool``; the result waits for it and returns it.

        Without a pool, it is read at once. What cannot be read is a problem of the chunk, not an error.
        """
        ...


# Cuts a sequence of samples into pieces of limited bytes and count; sizes that are too large to be true or to read.

LARGE_BYTES = 64 << 20  # a sample of more is looked at before it is read
_MOST_RATIO = 1032  # of deflate: 258 bytes of content take at least 2 bits


def split_by_bytes(sizes: NDArray[np.int64], max_bytes: int, max_samples: int) -> list[range]:
    """
    Return ranges that cover all of ``sizes`` in order.

    Each holds at most ``max_samples`` values of at most ``max_bytes`` together; a single larger value gets a range of
    its own.

    >>> split_by_bytes(np.array([3, 3, 9, 1]), 6, 10)
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    ends = np.cumsum(sizes)
    pieces, start, done = [], 0, 0
    while start < len(sizes):
        fitting = int(np.searchsorted(ends, done + max_bytes, side="right"))
        stop = max(start + 1, min(fitting, start + max_samples))
        pieces.append(range(start, stop))
        start, done = stop, int(ends[stop - 1])
    return pieces


def size_problem(size_bytes: int, stored_bytes: int) -> str:
    """
    Return what is wrong with a value of ``size_bytes`` of which only ``stored_bytes`` exist, in words that follow its
    name; "" if they may hold it.

    Files with holes, and arrays that were never written, claim any size.

    >>> size_problem(6 << 30, 4096)
    'claims 6,442,450,944 bytes, but 4,096 cannot hold them'
    """
    if size_bytes <= stored_bytes * _MOST_RATIO:
        return ""
    return f"claims {size_bytes:,} bytes, but {stored_bytes:,} cannot hold them"


def check_memory(size_bytes: int) -> None:
    """Raise MemoryError for more bytes than are free: Linux would promise them, and kill a process later."""
    if size_bytes > LARGE_BYTES and 0 < available_memory() < size_bytes:
        raise MemoryError


# Finds values whose bytes differ from the CRC-32 in their store.


def begin_check(spans: Spans, pool: _native.ThreadPool | None = None) -> Callable[[], NDArray[np.int64]]:
    """
    Begin to compare values with their checksums, on ``pool`` if there is one.

    Returns a function that waits and returns the positions of damaged values, ascending; none if the store has no
    checksums (other programs' tar shards).
    """
    expected = spans.checksums
    if expected is None:
        return lambda: np.empty(0, np.int64)
    found = np.empty(len(spans), np.uint32)
    job = _native.checksum(spans, found, pool)

    def finish() -> NDArray[np.int64]:
        job.wait()
        return np.flatnonzero(found != expected)

    return finish


def damaged(spans: Spans) -> NDArray[np.int64]:
    """Run ``begin_check`` at once, in this thread."""
    return begin_check(spans)()
