"""TextSource, the protocol of a text source, and documents on their way to a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool
from fastio.converters.sources.places import Places, runs_text
from fastio.converters.sources.streams import MAX_DOCUMENT_BYTES
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem
from fastio.types.spans import Spans

__all__ = [
    "Documents",
    "Gathering",
    "Limits",
    "TextOptions",
    "TextSource",
]


BLOCK_BYTES = 1 << 20  # of text that is read, tokenised and written as one piece of work
BLOCK_DOCUMENTS = 8192


_MEANING = {
    "split": "because only a single .txt file is cut",
    "text_field": "because only tables have fields",
    "label_field": "because only tables have fields; class folders give labels too",
    "without": "because only tables have columns",
    "chat": "because only tables hold chats",
}
_MEANING_OF_CHATS = "because the columns of a chat are packed together"

_ASKED_FIRST = ("chat", "split", "label_field", "text_field", "without")  # of options, which an error names
_OPTIONS = {"split": "--document", "text_field": "--text-column", "label_field": "--label-column"}


@dataclass(frozen=True, slots=True)
class TextOptions:
    """
    How to find the text in a source.

    ``split`` says what a single .txt file is cut into. The text of a table is its column ``text_field``, "text" by
    default (lists of integers there are token ids); labels are in ``label_field``. Of the other columns, those that
    hold pictures must be named in ``without`` (``*``: all). With ``chat``, the documents are the chats in that column
    and in those that belong to it. A document of more than ``max_document_bytes`` is a problem.
    """

    split: Literal["line", "paragraph"] | None = None
    text_field: str | None = None
    label_field: str | None = None
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    without: tuple[str, ...] = ()
    chat: str | None = None

    def refuse(self, path: str, *names: str) -> None:
        """Raise SourceError if an option was given that has no effect for this source."""
        for name in sorted(names, key=_ASKED_FIRST.index):
            value = getattr(self, name)
            if value is not None and value != ():
                option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
                words = ",".join(value) if isinstance(value, tuple) else value
                is_of_chats = self.chat is not None and name in ("text_field", "label_field")
                why = _MEANING_OF_CHATS if is_of_chats else _MEANING[name]
                raise SourceError(f"{path}: {option} {words} has no effect, {why}")

    @property
    def too_long(self) -> str:
        """The sentence for a document above the limit."""
        return f"is longer than {self.max_document_bytes:,} bytes; --max-document raises that limit"


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a piece of work may be; a single larger document is a piece of its own."""

    block_bytes: int = BLOCK_BYTES
    block_documents: int = BLOCK_DOCUMENTS


@dataclass(frozen=True, slots=True)
class Documents:
    """
    A run of documents in order, and those of the same part of the source that could not be read.

    Document i is ``sizes[i]`` bytes of ``data`` from ``starts[i]`` on, ascending and disjoint: unchecked UTF-8, or
    int64 from a source of ids. ``labels`` is int64 or None. ``read_bytes`` is how much of the source's files, as
    stored on disk, was read for them. ``blank_lines`` are the numbers, in ``file``, of the lines among them that are
    empty or blank where each line is a document or a row: they are left out, by name. ``field`` is that of the rows
    that are documents, for messages.
    """

    keys: Sequence[str]
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    problems: Sequence[Problem]
    read_bytes: int
    blank_lines: Sequence[int] | NDArray[np.int64] = ()
    file: str = ""
    field: str = ""

    @property
    def text_bytes(self) -> int:
        """The bytes of all of them."""
        return int(self.sizes.sum())

    @property
    def blank(self) -> Places:
        """The blank lines by name."""
        return {self.file: runs_text(self.blank_lines)} if len(self.blank_lines) else {}

    def checksum(self, before: int) -> int:
        """Return the CRC-32 of ``before``, and of the bytes and label of each document."""
        every = np.empty(len(self.sizes), np.uint32)
        _native.checksum(Spans.of(self.data, self.starts, self.sizes), every).wait()
        parts = [every, self.sizes] if self.labels is None else [every, self.sizes, self.labels]
        for part in parts:
            before = _native.crc32(np.ascontiguousarray(part), before)
        return before

    def without(self, problems: Mapping[int, str]) -> Documents:
        """Return the documents whose position is not named; the others become problems."""
        if not problems:
            return self
        bad = sorted(problems)
        good = np.setdiff1d(np.arange(len(self.keys)), np.array(bad, np.int64))
        return replace(
            self,
            keys=[self.keys[i] for i in good.tolist()],
            starts=self.starts[good],
            sizes=self.sizes[good],
            labels=None if self.labels is None else self.labels[good],
            problems=[*self.problems, *(Problem(self.keys[i], problems[i]) for i in bad)],
        )


class TextSource(Protocol):
    """
    Documents in an order that depends only on names, read once from front to back.

    Their number is known only when all have been read: a file of many gigabytes is not read twice to count them.
    """

    @property
    def path(self) -> str:
        """The path as the user named it."""
        ...

    @property
    def kind(self) -> str:
        """The name in SOURCES."""
        ...

    @property
    def is_ids(self) -> bool:
        """Whether the documents are token ids."""
        ...

    @property
    def has_labels(self) -> bool: ...

    @property
    def problems(self) -> Sequence[Problem]:
        """Problems found while scanning (not in any piece), sorted by key."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes, as stored on disk, of all files that will be read."""
        ...

    @property
    def disk_bytes(self) -> int:
        """The space that the source takes on disk, in whole blocks."""
        ...

    @property
    def files_opened(self) -> int: ...

    def file_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the path and the size on disk of each file, in the order in which they are read."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON, complete when everything has been read: "classes", "source" (with what unpacking needs)."""
        ...

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all documents in pieces of limited size. Raises SourceError if a file cannot be read further."""
        ...


class _Read(Protocol):
    """A file that documents are read from: how far, and which blank lines were passed over."""

    @property
    def position(self) -> int: ...

    def take_blank_lines(self) -> Sequence[int]:
        """Return the numbers of those passed over since the last call."""
        ...


@dataclass(slots=True)
class Gathering:
    """Collects documents one by one until there are enough for a piece of work."""

    limits: Limits
    stream: _Read
    file: str  # which the keys begin with
    has_labels: bool = False
    field: str = ""
    keys: list[str] = dataclass_field(default_factory=list)
    texts: list[bytes] = dataclass_field(default_factory=list)
    labels: list[int] = dataclass_field(default_factory=list)
    problems: list[Problem] = dataclass_field(default_factory=list)
    _bytes: int = 0
    _position: int = 0

    def add(self, key: str, text: bytes, label: int = 0) -> None:
        """Add one document."""
        self.keys.append(key)
        self.texts.append(text)
        self.labels.append(label)
        self._bytes += len(text)

    def refuse(self, key: str, sentence: str) -> None:
        """Add one document that cannot be read."""
        self.problems.append(Problem(key, sentence))

    @property
    def is_full(self) -> bool:
        """Whether ``take`` is due."""
        found = len(self.keys) + len(self.problems)
        return self._bytes >= self.limits.block_bytes or found >= self.limits.block_documents

    def take(self) -> Documents:
        """Return what was gathered, and start the next piece."""
        sizes = np.array([len(text) for text in self.texts], np.int64)
        at = self.stream.position
        documents = Documents(
            keys=self.keys,
            data=np.frombuffer(b"".join(self.texts), np.uint8),
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            labels=np.array(self.labels, np.int64) if self.has_labels else None,
            problems=self.problems,
            read_bytes=at - self._position,
            blank_lines=self.stream.take_blank_lines(),
            file=self.file,
            field=self.field,
        )
        self.keys, self.texts, self.labels, self.problems = [], [], [], []
        self._bytes, self._position = 0, at
        return documents
