"""Files of text as streams of bytes, decompressed if their name ends in .gz or .zst."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from fastio.converters.sources.optional import pyarrow
from fastio.errors import FastioError, SourceError
from fastio.store.kinds.names import plain_name

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "Stream",
    "opened",
    "seekable",
]


MAX_DOCUMENT_BYTES: Final = 64 << 20
_COPY_BYTES = 1 << 20


class Stream:
    """
    The bytes of a file, front to back; ``position`` says how far the file on disk has been read.

    Whoever reads rows from it adds the numbers of ``blank_lines``, which are none.
    """

    def __init__(self, path: str, read: Callable[[int], bytes], raw: IO[bytes]) -> None:
        self.path = path
        self._read = read
        self._raw = raw
        self.blank_lines = array("q")

    @property
    def position(self) -> int:
        """Bytes of the file read so far; for a compressed one, up to the position of its decompressor."""
        return self._raw.tell()

    def take_blank_lines(self) -> Sequence[int]:
        """Return the numbers of the blank lines that were added since the last call."""
        taken, self.blank_lines = self.blank_lines, array("q")
        return taken

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end. Raises SourceError if they cannot be read."""
        parts = []
        with _reading(self.path):
            while size > 0:
                part = self._read(size)
                if not part:
                    break
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    def lines(self, limit: int) -> Iterator[tuple[int, bytes | None]]:
        """
        Yield number (from 1) and bytes of each line without its LF or CR LF; None for one of more than ``limit``
        bytes.
        """
        number, rest, is_long = 0, b"", False
        while data := self.read(max(_COPY_BYTES, len(rest))):
            *whole, tail = data.split(b"\n")
            if whole:
                whole[0] = rest + whole[0]
                rest = b""
            for line in whole:
                number += 1
                yield number, None if is_long or len(line) > limit + 1 else line.removesuffix(b"\r")
                is_long = False
            rest += tail
            if len(rest) > limit + 1:
                rest, is_long = b"", True
        if rest or is_long:
            yield number + 1, None if is_long else rest


@contextmanager
def opened(path: str) -> Iterator[Stream]:
    """Open a file as a stream of its content."""
    suffix = Path(path).suffix.lower()
    with _reading(path), Path(path).open("rb") as raw:
        if suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as unzipped:
                yield Stream(path, unzipped.read, raw)
        elif suffix == ".zst":
            arrow = pyarrow(f"to read {path}")
            with arrow.CompressedInputStream(arrow.PythonFile(raw), "zstd") as decoded:
                yield Stream(path, decoded.read, raw)
        else:
            yield Stream(path, raw.read, raw)


@contextmanager
def seekable(path: str) -> Iterator[Any]:
    """
    Open a file that can be read in any order, as pyarrow needs; a compressed one is first unpacked to a temporary
    file.
    """
    arrow = pyarrow(f"to read {path}")
    if plain_name(path) == path:
        with _reading(path):
            mapped = arrow.memory_map(os.fspath(path))
        with mapped:
            yield mapped
        return
    with _unpacked(path) as copy:
        yield arrow.PythonFile(copy)


def _unpacked(path: str) -> IO[bytes]:
    """A temporary file with what is in a compressed one."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with opened(path) as stream:
            while data := stream.read(_COPY_BYTES):
                _append(data, copy, path)
        copy.seek(0)
    except BaseException:
        with suppress(OSError):  # once more, of what could not be written
            copy.close()
        raise
    return copy


def _append(data: bytes, copy: IO[bytes], path: str) -> None:
    try:
        copy.write(data)
        copy.flush()
    except OSError as exc:
        raise SourceError(
            f"{path}: cannot be unpacked into {tempfile.gettempdir()}: {exc.strerror or exc}; free space there, "
            "or name another folder in TMPDIR"
        ) from exc


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what the system, zlib and Arrow raise about a file into one SourceError that names it."""
    try:
        yield
    except FastioError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise SourceError(f"{path}: the compressed data are damaged or truncated ({exc}): get the file again") from exc
    except OSError as exc:
        raise SourceError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
