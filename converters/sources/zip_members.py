"""The members of a zip archive of others: where their bytes lie, and how to inflate one without trusting its sizes."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.sources.listed import Indices, Values, begin_in_place
from fastio.converters.sources.source import begin_check, check_memory, size_problem
from fastio.errors import SourceError, StoreError
from fastio.store.files import ByteSource, StoreFiles, files_of, open_file
from fastio.store.formats.zip_archive import cut_zip
from fastio.store.index.sealed import bytes_from
from fastio.types.spans import Spans

__all__ = [
    "MemberReader",
    "ZipMember",
    "ZipMembers",
    "inflated",
    "open_members",
]


STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED, _UTF_8 = 0x1 | 0x40, 0x800  # flags
_PIECE = 1 << 20
_MOST_END = 22 + 65535  # bytes of an end record with its comment


@dataclass(frozen=True, slots=True)
class ZipMember:
    """
    One file of an archive. ``start`` is where its bytes begin, ``packed`` how many there are, ``size`` how many they
    become. ``problem`` says why it cannot be read, in words that follow its name; "" if it can.
    """

    name: str
    start: int
    packed: int
    size: int
    crc: int
    is_stored: bool
    is_link: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ZipMembers:
    """An archive, and its files in the order of the directory; folders are not among them."""

    file: ByteSource
    files: tuple[ZipMember, ...]


def open_members(path: str) -> ZipMembers:
    """
    List an archive by its central directory. Raises SourceError if it is none, damaged, or encrypted.

    Every number in it is checked: members lie within the file and do not overlap, and none promises more bytes than its
    compression can give.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if not all(info.filename for info in archive.infolist()):
                raise zipfile.BadZipFile("a member has no name")
            infos = [info for info in archive.infolist() if not info.is_dir()]
            folders = len(archive.infolist()) - len(infos)
        file = open_file(path)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, ValueError, EOFError, struct.error) as exc:
        raise SourceError(f"{path}: {_reason(path, exc)}") from exc
    except (OSError, StoreError) as exc:
        raise SourceError(f"{path}: cannot be read: {exc}") from exc
    _check_count(file, len(infos) + folders)
    locked = next((info for info in infos if info.flag_bits & _ENCRYPTED), None)
    if locked is not None:
        raise SourceError(
            f"{path}: {locked.filename} is encrypted: unzip the archive with its password, pack the folder"
        )
    members = tuple(_member(file, info) for info in infos)
    _check_apart(path, members)
    return ZipMembers(file, members)


def _member(file: ByteSource, info: zipfile.ZipInfo) -> ZipMember:
    problem, start = "", 0
    at = info.header_offset
    if not 0 <= at <= file.size - _LOCAL.size:
        problem = "has its header outside the archive"
    else:
        magic, *_, name_size, extra_size = _LOCAL.unpack(file.read(at, at + _LOCAL.size).tobytes())
        start = at + _LOCAL.size + name_size + extra_size
        if magic != b"PK\3\4":
            problem = "has a damaged header"
        elif not _is_name(file.read(at + _LOCAL.size, min(at + _LOCAL.size + name_size, file.size)).tobytes(), info):
            problem = "has another name before its bytes than in the directory: the archive is damaged"
        elif start + info.compress_size > file.size:
            problem = "is cut off"
    if info.compress_type not in (STORED, DEFLATED):
        method = f"is compressed by method {info.compress_type} of zip"
        problem = problem or f"{method}, expected deflate (8) or none (0): zip it again, or unzip the archive"
    is_stored = info.compress_type == STORED
    if is_stored and info.file_size != info.compress_size:
        problem = problem or f"claims {info.file_size:,} bytes, but {info.compress_size:,} are there"
    problem = problem or size_problem(info.file_size, info.compress_size)
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    return ZipMember(info.filename, start, info.compress_size, info.file_size, info.CRC, is_stored, is_link, problem)


def _is_name(name: bytes, info: zipfile.ZipInfo) -> bool:
    """Return whether a member has this name, as zipfile compares it."""
    try:
        return name.decode("utf-8" if info.flag_bits & _UTF_8 else "cp437") == info.orig_filename
    except UnicodeDecodeError:
        return False


def _reason(path: str, error: Exception) -> str:
    """Return why an archive cannot be listed, and what to do."""
    with suppress(OSError, StoreError):
        file = open_file(path)
        cut = cut_zip(file.size, partial(bytes_from, file))
        if cut:
            return cut
    return f"is not a whole zip archive ({error}): copy or download it again"


def _check_count(file: ByteSource, count: int) -> None:
    """SourceError if the end record knows of another number of members than the directory lists."""
    tail = file.read(max(0, file.size - _MOST_END), file.size).tobytes()
    at = tail.rfind(b"PK\5\6")
    said = int.from_bytes(tail[at + 10 : at + 12], "little")
    if at >= 0 and said != 0xFFFF and said != count % 0x10000:
        raise SourceError(f"{file.path}: lists {count:,} members, expected {said:,}: copy or download it again")


def _check_apart(path: str, members: tuple[ZipMember, ...]) -> None:
    """SourceError for members that share bytes, as in archives that inflate to far more than all files of a disk."""
    good = sorted((each for each in members if not each.problem), key=lambda each: each.start)
    for one, other in pairwise(good):
        if one.start + one.packed > other.start:
            raise SourceError(f"{path}: {one.name} and {other.name} share bytes: the archive is damaged or hostile")


def inflated(file: ByteSource, member: ZipMember) -> Iterator[bytes]:
    """Yield the content of a member in pieces. Raises ValueError, in words that follow its name, if it is damaged."""
    crc = total = 0
    for piece in _stored(file, member) if member.is_stored else _inflated(file, member):
        crc, total = zlib.crc32(piece, crc), total + len(piece)
        if total > member.size:
            raise ValueError(f"holds more than the {member.size:,} bytes that it claims")
        yield piece
    if total != member.size:
        raise ValueError(f"ends after {total:,} of {member.size:,} bytes")
    if crc != member.crc:
        raise ValueError("differs from its checksum")


def _stored(file: ByteSource, member: ZipMember) -> Iterator[bytes]:
    for at in range(member.start, member.start + member.size, _PIECE):
        yield file.read(at, min(at + _PIECE, member.start + member.size)).tobytes()


def _inflated(file: ByteSource, member: ZipMember) -> Iterator[bytes]:
    engine, stop = zlib.decompressobj(-15), member.start + member.packed
    try:
        for at in range(member.start, stop, _PIECE):
            data = file.read(at, min(at + _PIECE, stop)).tobytes()
            while data:
                yield engine.decompress(data, _PIECE)
                data = engine.unconsumed_tail
            if engine.eof:
                return
        yield engine.flush()
    except zlib.error as exc:
        raise ValueError("is damaged: its compressed bytes make no sense") from exc


@dataclass(frozen=True, slots=True)
class MemberReader:
    """ZipMembers of an archive as the values of one field, a member for each sample."""

    field_name: str
    file: ByteSource
    members: tuple[ZipMember, ...]
    located: NDArray[np.int64]  # (n, 3): start, size, and whether it is stored
    checksums: NDArray[np.uint32]
    files: StoreFiles

    @classmethod
    def of(cls, field_name: str, file: ByteSource, members: tuple[ZipMember, ...]) -> MemberReader:
        """Return a reader of these members."""
        located = np.array([(each.start, each.size, each.is_stored) for each in members], np.int64).reshape(-1, 3)
        checksums = np.array([each.crc for each in members], np.uint32)
        return cls(field_name, file, members, located, checksums, files_of([file]))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each value."""
        return self.located[:, 1].copy()

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """
        Begin to read some members; see ``ListedSource.read``.

        If all are stored, their bytes stay where they are; otherwise the members are inflated one after the other into
        memory of exactly the sizes that the directory gives.
        """
        starts, sizes, is_stored = self.located[indices].T.copy()
        if not is_stored.all():
            return lambda: self._inflate(indices, sizes)
        wait = begin_in_place(self.files, starts, sizes, pool, checksums=self.checksums[indices])

        def finish() -> Values:
            there, unread = wait()
            problems = dict.fromkeys(unread, "cannot be read")
            for i in begin_check(there, None)().tolist():
                problems.setdefault(i, "differs from its checksum")
            return Values({self.field_name: there}, problems)

        return finish

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where members lie, with their checksums, if all are stored; see ``Placer``."""
        starts, sizes, _ = self.located[indices].T.copy()
        deflated = np.flatnonzero(self.located[:, 2] == 0)
        if len(deflated):
            words = f"are deflated, such as {self.members[int(deflated[0])].name}"
            return Values(self.begin(indices, None)().spans, unfit={self.field_name: words})
        problems = self.begin(indices, None)().problems if check else {}
        shard = np.zeros(len(indices), np.int32)
        spans = Spans(self.files.buffers, shard, starts, sizes, self.checksums[indices])
        return Values({self.field_name: spans}, problems, files={self.field_name: [self.file.path]})

    def _inflate(self, indices: Indices, sizes: NDArray[np.int64]) -> Values:
        try:
            check_memory(int(sizes.sum()))
            data = bytearray(int(sizes.sum()))
        except MemoryError as exc:
            largest = self.members[int(indices[int(sizes.argmax())])]
            raise SourceError(
                f"{self.file.path}: there is not enough memory for {largest.name} of {largest.size:,} bytes"
            ) from exc
        problems: dict[int, str] = {}
        starts = np.cumsum(sizes) - sizes
        for i, (index, start) in enumerate(zip(indices.tolist(), starts.tolist(), strict=True)):
            at = start
            try:
                for piece in inflated(self.file, self.members[index]):
                    data[at : at + len(piece)] = piece
                    at += len(piece)
            except ValueError as exc:
                problems[i] = str(exc)
        return Values({self.field_name: Spans.of(np.frombuffer(data, np.uint8), starts, sizes)}, problems)
