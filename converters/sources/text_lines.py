"""A single .txt file: one document per line or per paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.sources.documents import Documents, Limits, TextOptions
from fastio.converters.sources.options import source_record
from fastio.converters.sources.streams import MAX_DOCUMENT_BYTES, opened
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name
from fastio.store.kinds.scan import Problem

__all__ = [
    "Separators",
    "open_lines",
]


# Keeps what was between the documents of a text file, so that the file can be restored byte for byte.

_MAX_ODD = 1 << 20  # places kept; a file with more of them comes back with its usual separator there


@dataclass(slots=True)
class Separators:
    """
    ``usual`` follows every document except those in ``odd``, which maps other separators to the numbers of documents.

    ``head`` precedes the first document. ``is_whole`` is False if a document is missing or there were too many odd
    separators: the file cannot be restored exactly.
    """

    head: str = ""
    usual: str | None = None
    odd: dict[str, list[int]] = field(default_factory=dict)
    count: int = 0
    is_whole: bool = True
    _odd_places: int = 0

    def add(self, data: bytes, spans: NDArray[np.int64]) -> None:
        """Add the separators, ``(n, 2)`` starts and stops in ``data``, of the next n documents."""
        if self.usual is None and len(spans):
            self.usual = data[spans[0, 0] : spans[0, 1]].decode("ascii")
        if not self.is_whole:
            return
        usual = (self.usual or "").encode("ascii")
        for i, (start, stop) in enumerate(spans.tolist(), self.count):
            if stop - start != len(usual) or data[start:stop] != usual:
                self.odd.setdefault(data[start:stop].decode("ascii"), []).append(i)
                self._odd_places += 1
        self.count += len(spans)
        if self._odd_places > _MAX_ODD:
            self.is_whole, self.odd = False, {}

    def after(self) -> dict[int, str]:
        """Return odd separators by the number of their document."""
        return {place: text for text, places in self.odd.items() for place in places}

    def joined(self, documents: Iterable[bytes]) -> bytes:
        """Return the file again: all its documents with what was between them."""
        odd, usual = self.after(), (self.usual or "").encode()
        parts = [self.head.encode()]
        for i, document in enumerate(documents):
            parts += (document, odd[i].encode() if i in odd else usual)
        return b"".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return a plain structure for the store's metadata."""
        return {"head": self.head, "usual": self.usual or "", "odd": self.odd, "whole": self.is_whole}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Separators:
        """Read what ``to_json`` wrote. Raises KeyError or TypeError for anything else."""
        return cls(
            head=str(data["head"]), usual=str(data["usual"]), odd=dict(data["odd"]), is_whole=bool(data["whole"])
        )


# What stands between two documents. Lines of blanks alone belong to it. So does the CR of a CR LF, which is looked for
# afterwards: an expression that begins with LF alone finds it by memchr.
_BETWEEN = {
    "line": re.compile(rb"\n(?:[ \t\r]*\n)*"),
    "paragraph": re.compile(rb"\n(?:[ \t\r]*\n)+"),
}
_CR = ord("\r")
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*\n)*")
_BLANK = b" \t\r\n"


def open_lines(path: str, options: TextOptions) -> LinesSource:
    """Open a .txt, .txt.gz or .txt.zst file; ``options.split`` says what a document is, by default a line."""
    if not Path(path).is_file():
        raise SourceError(f"{path}: expected a file")
    options.refuse(path, "text_field", "label_field", "without", "chat")
    return LinesSource(path, options.split or "line", options)


@dataclass(slots=True)
class LinesSource:
    """
    A text file cut at its line ends, or at empty and blank lines. Satisfies ``TextSource``.

    A document's key is the file's name and the number of its first line. What is between documents is kept
    separately, so that unpacking can restore the file byte for byte.
    """

    path: str
    split: Literal["line", "paragraph"]
    options: TextOptions
    separators: Separators = field(default_factory=Separators)
    is_ids: bool = False
    has_labels: bool = False
    problems: Sequence[Problem] = ()
    files_opened: int = 1

    @property
    def kind(self) -> str:
        """The name in SOURCES."""
        return "lines"

    @property
    def size_bytes(self) -> int:
        """The size of the file on disk."""
        return Path(self.path).stat().st_size

    @property
    def disk_bytes(self) -> int:
        """The file's space in whole blocks."""
        return Path(self.path).stat().st_blocks * 512

    def file_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the file and its size."""
        yield self.path, self.size_bytes

    @property
    def metadata(self) -> Mapping[str, Any]:
        """How the file was cut, and what was between its documents."""
        source = source_record(
            self.kind,
            plain_name(Path(self.path).resolve().name),
            split=self.split,
            max_document_bytes=self.options.max_document_bytes,
            between=self.separators.to_json(),
        )
        return {"classes": None, "source": source}

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all documents, in pieces."""
        del pool  # one file is read by one thread
        self.separators = Separators()
        with opened(self.path) as stream:
            cutter = _Cutter(self, plain_name(Path(self.path).name))
            position, is_last = 0, False
            while not is_last:
                # As much again as is waiting: a long document is looked at a few times, not once a block.
                block = stream.read(max(limits.block_bytes, cutter.waiting_bytes))
                is_last = not block
                for piece in cutter.cut(block, is_last=is_last):
                    at = stream.position
                    yield from _pieces(piece, limits, at - position)
                    position = at


@dataclass(frozen=True, slots=True)
class _Piece:
    """Documents of one block: where they lie in it, and the numbers of their lines."""

    name: str
    data: bytes
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    lines: NDArray[np.int64]
    problems: Sequence[Problem]
    blank_lines: NDArray[np.int64]


def _pieces(piece: _Piece, limits: Limits, read_bytes: int) -> Iterator[Documents]:
    """Cut further where there are too many documents in it."""
    data = np.frombuffer(piece.data, np.uint8)
    count = len(piece.starts)
    for start in range(0, max(count, 1), limits.block_documents):
        part = slice(start, start + limits.block_documents)
        yield Documents(
            keys=[f"{piece.name}:{line}" for line in piece.lines[part].tolist()],
            data=data,
            starts=piece.starts[part],
            sizes=piece.stops[part] - piece.starts[part],
            labels=None,
            problems=piece.problems if start == 0 else (),
            read_bytes=read_bytes if start == 0 else 0,
            blank_lines=piece.blank_lines if start == 0 else (),
            file=piece.name,
        )


class _Cutter:
    """Cuts blocks into documents; what may go on in the next block waits for it."""

    def __init__(self, source: LinesSource, name: str) -> None:
        self._between = _BETWEEN[source.split]
        self._is_by_line = source.split == "line"
        self._limit = source.options.max_document_bytes
        self._too_long_is = source.options.too_long
        self._separators = source.separators
        self._path = source.path
        self._name = name
        self._rest = b""
        self._line = 1  # number of the line that ``_rest`` begins in
        self._is_head = True
        self._too_long = 0  # line of a document that is being passed over
        self._blank_lines = 0  # before the first document

    @property
    def waiting_bytes(self) -> int:
        """The bytes held until their document ends."""
        return len(self._rest)

    def cut(self, block: bytes, *, is_last: bool) -> Iterator[_Piece]:
        """Yield the documents that end in this block; the last, empty block returns all that are left."""
        data = self._rest + block
        if self._is_head:
            head = _HEAD.match(data)
            stop = head.end() if head else 0
            if not data[stop:].strip(_BLANK) and not is_last:
                self._rest = data
                self._pass_over()
                return
            self._separators.head = data[:stop].decode("utf-8")
            self._blank_lines = data.count(b"\n", 0, stop)
            self._line += self._blank_lines
            data, self._is_head = data[stop:], False
        found = (match.span() for match in self._between.finditer(data))
        between = [(start - (start > 0 and data[start - 1] == _CR), stop) for start, stop in found]
        if is_last:
            between = _ended(data, between)
        else:
            while between and not data[between[-1][1] :].strip(_BLANK):
                between.pop()  # may go on in the next block
        end = between[-1][1] if between else 0
        self._rest = data[end:]
        if between:
            yield self._piece(data[:end], np.array(between, np.int64))
        self._pass_over()

    def _piece(self, data: bytes, between: NDArray[np.int64]) -> _Piece:
        starts, stops = np.concatenate(([0], between[:-1, 1])), between[:, 0]
        ends_of_lines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        lines = self._line + np.searchsorted(ends_of_lines, starts)
        blank_lines = np.empty(0, np.int64)
        if self._is_by_line:  # elsewhere they are what is between documents
            count = len(ends_of_lines) + (not data.endswith(b"\n"))
            line = self._line - self._blank_lines
            is_blank = np.ones(self._blank_lines + count, np.bool_)
            is_blank[lines - line] = False
            blank_lines, self._blank_lines = np.flatnonzero(is_blank) + line, 0
        self._line += len(ends_of_lines)
        problems = []
        first = int(self._too_long > 0)
        if first:
            problems.append(Problem(f"{self._name}:{self._too_long}", self._too_long_is))
            self._too_long = 0
        long = np.flatnonzero(stops[first:] - starts[first:] > self._limit) + first
        problems += [Problem(f"{self._name}:{lines[i]}", self._too_long_is) for i in long.tolist()]
        good = np.setdiff1d(np.arange(first, len(starts)), long)
        if len(good) < len(starts):
            self._separators.is_whole = False
        self._separators.add(data, between)
        return _Piece(self._name, data, starts[good], stops[good], lines[good], problems, blank_lines)

    def _pass_over(self) -> None:
        """Keep only the end of a document that is too long already, and all blanks: what follows may need them."""
        if len(self._rest) <= self._limit:
            return
        stop = len(self._rest.rstrip(_BLANK))
        if len(self._rest) - stop > MAX_DOCUMENT_BYTES:
            raise SourceError(
                f"{self._path}: more than {MAX_DOCUMENT_BYTES:,} bytes of blanks after line {self._line}: is it text?"
            )
        if stop > self._limit:
            self._too_long = self._too_long or self._line
            dropped = self._rest[: stop - 1]  # a letter says that the document goes on
            self._line += dropped.count(b"\n")
            self._rest = self._rest[len(dropped) :]


def _ended(data: bytes, between: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The separators of the end of a file: its last line end and blank lines are one more, or part of the last."""
    start = between[-1][1] if between else 0
    if start == len(data):
        return between
    stop = len(data.rstrip(_BLANK))
    if stop <= start:
        return [*between[:-1], (between[-1][0], len(data))] if between else []
    at = data.find(b"\n", stop)
    if at < 0:
        return [*between, (len(data), len(data))]
    return [*between, (at - (data[at - 1] == _CR), len(data))]
