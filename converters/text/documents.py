"""Documents on their way from a text source to a tokenizer: the protocol of a text source, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.source import Problem
from fastio.errors import SourceError

__all__ = ["BLOCK_BYTES", "MAX_DOCUMENT_BYTES", "Documents", "Gathering", "Limits", "TextOptions", "TextSource"]

BLOCK_BYTES = 1 << 20  # of text that is read, tokenised and written as one piece of work
BLOCK_DOCUMENTS = 8192
MAX_DOCUMENT_BYTES = 64 << 20


_MEANING = {
    "split": "only one .txt file is cut",
    "text_field": "only tables have fields",
    "label_field": "only tables have fields; class folders give labels too",
}


@dataclass(frozen=True, slots=True)
class TextOptions:
    """
    How the text of a source is found in it.

    ``split`` says what one .txt file is cut into. A table's text is its column ``text_field``, "text" unless told
    (ready ids are taken where that holds lists of whole numbers), labels are ``label_field``. A document of more
    than ``max_document_bytes`` is a problem.
    """

    split: Literal["line", "paragraph"] | None = None
    text_field: str | None = None
    label_field: str | None = None
    max_document_bytes: int = MAX_DOCUMENT_BYTES

    def refuse(self, path: str, *names: str) -> None:
        """SourceError where something was said that means nothing to this source."""
        for name in names:
            if getattr(self, name) is not None:
                option = {"split": "--split-text"}.get(name, f"--{name.replace('_', '-')}")
                raise SourceError(f"{path}: {option} {getattr(self, name)} means nothing here, {_MEANING[name]}")

    @property
    def too_long(self) -> str:
        """What is said of a document above the limit."""
        return f"is longer than {self.max_document_bytes:,} bytes; --max-document raises that limit"


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a piece of work may be; one larger document is a piece of its own."""

    block_bytes: int = BLOCK_BYTES
    block_documents: int = BLOCK_DOCUMENTS


@dataclass(frozen=True, slots=True)
class Documents:
    """
    A run of documents in order, and those of the same part of the source that cannot be had.

    Document i is ``sizes[i]`` bytes of ``data`` from ``starts[i]`` on, in rising order and apart: UTF-8 that nobody has
    looked at yet, or, from a source of ready ids, int64. ``labels`` is int64 or None. ``read_bytes`` were read of
    the source's files for them, as these lie on the disk.
    """

    keys: Sequence[str]
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    problems: Sequence[Problem]
    read_bytes: int

    def without(self, problems: Mapping[int, str]) -> Documents:
        """The documents whose position is not named; the others join the problems."""
        if not problems:
            return self
        bad = sorted(problems)
        good = np.setdiff1d(np.arange(len(self.keys)), np.array(bad, np.int64))
        return Documents(
            keys=[self.keys[i] for i in good.tolist()],
            data=self.data,
            starts=self.starts[good],
            sizes=self.sizes[good],
            labels=None if self.labels is None else self.labels[good],
            problems=[*self.problems, *(Problem(self.keys[i], problems[i]) for i in bad)],
            read_bytes=self.read_bytes,
        )


class TextSource(Protocol):
    """
    Documents in an order that depends on names alone, read once from front to back.

    How many there are is known when all have been read: a file of many gigabytes is not read twice to count them.
    """

    @property
    def path(self) -> str:
        """As the user named it."""
        ...

    @property
    def kind(self) -> str:
        """The name in TEXT_SOURCES."""
        ...

    @property
    def is_ids(self) -> bool:
        """Whether the documents are ready token ids."""
        ...

    @property
    def has_labels(self) -> bool: ...

    @property
    def problems(self) -> Sequence[Problem]:
        """Found while scanning (not in any piece), sorted by key."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that will be read, as they lie on the disk."""
        ...

    @property
    def disk_bytes(self) -> int:
        """What the source takes on disk, in blocks."""
        ...

    @property
    def files_opened(self) -> int: ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON, complete when everything has been read: "classes", "source" (with what unpacking needs)."""
        ...

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """All documents, in pieces of bounded size; a file that cannot be read on is a SourceError."""
        ...


@dataclass(slots=True)
class Gathering:
    """Collects documents one by one until there are enough for a piece of work."""

    limits: Limits
    position: Callable[[], int]  # bytes read of the source so far
    has_labels: bool = False
    keys: list[str] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _bytes: int = 0
    _position: int = 0

    def add(self, key: str, text: bytes, label: int = 0) -> None:
        """One document."""
        self.keys.append(key)
        self.texts.append(text)
        self.labels.append(label)
        self._bytes += len(text)

    def refuse(self, key: str, sentence: str) -> None:
        """One document that cannot be had."""
        self.problems.append(Problem(key, sentence))

    @property
    def is_full(self) -> bool:
        """Whether ``take`` is due."""
        found = len(self.keys) + len(self.problems)
        return self._bytes >= self.limits.block_bytes or found >= self.limits.block_documents

    def take(self) -> Documents:
        """What was gathered; the next piece begins."""
        sizes = np.array([len(text) for text in self.texts], np.int64)
        at = self.position()
        documents = Documents(
            keys=self.keys,
            data=np.frombuffer(b"".join(self.texts), np.uint8),
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            labels=np.array(self.labels, np.int64) if self.has_labels else None,
            problems=self.problems,
            read_bytes=at - self._position,
        )
        self.keys, self.texts, self.labels, self.problems = [], [], [], []
        self._bytes, self._position = 0, at
        return documents
