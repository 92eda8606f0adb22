"""The journal of a set of shards: a set changes at one instant, although each shard needs a renaming of its own.

While the shards of ``out-%06d.tar`` get their names, a hidden file lies beside them, called as they are with ``#`` for
the number. It is locked (flock) by the packer at work, so that one packer at a time names shards, and holds the
record of what is to be done, two lines:

    .out-#.tar.publishing
        {"fastio": 1, "token": "4242-0", "replace": true, "shards": ["out-000001.tar", "out-000000.tar"],
         "remove": ["out-000002.tar"]}                      (one line)
        9a3b11c2                                            CRC-32 of the line before, with its line feed

The shard ``out-000001.tar`` lies in ``.out-000001.tar.partial-4242-0`` until it has its name. What may be found after
an error, a signal, SIGKILL or a power cut, where a set of three shards is replaced by one of two:

    state        out-000000  out-000001  out-000002  hidden new shards  journal     fastio opens  other programs see
    1 packing    old         old         old         0, 1               -, empty    old           old
    2 committed  old         old         old         0, 1               the record  new           old
    3 naming     old         new         old         0                  the record  new           shards of two sets
    4 swept      old         new         -           0                  the record  new           shards of two sets
    5 named      new         new         -           -                  the record  new           new
    6 done       new         new         -           -                  -           new           new

The record is the commit point: the shards are synced before it, and so is the folder that lists them; the record is
synced before the first renaming. A record whose CRC is wrong was never committed, and one whose last shard is not
hidden has been carried out. From state 2 on the only way is forward, and every step may be taken twice: whoever opens
the set or packs to it first after a crash takes the steps that are left, if the lock is free and the folder may be
written to; otherwise a reader takes hidden shards for those that have no name yet, and passes over those that are to
be removed. Without overwriting there are no old shards, and a name that is taken is never replaced.

A file system without locks cannot tell a packer that died from one at work: there the journal of another packer is an
error for packers, and readers read as above.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.atomic import MARK, move_to_free, sync_folder, write_all

__all__ = ["SUFFIX", "Journal", "Record", "claim", "follow", "journal_path", "peek", "recover", "wait_for"]

SUFFIX = ".publishing"
_VERSION = 1
_NUMBERS = re.compile(r"(?:%0?[0-9]*d|[0-9])+")
_ATTEMPTS = 1000
_READ_BYTES = 1 << 20
_NAME = re.compile(r"(?!\.{1,2}\Z)[^/]+", re.DOTALL)
_PATIENCE_S = 1.0
_PAUSE_S = 0.001
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """What to do to a folder so that a set of shards gets its names; names are without the folder."""

    token: str  # what the hidden files of the set have in their names
    shards: Sequence[str]  # in the order in which they get their names
    remove: Sequence[str]  # shards of the old set that are not replaced
    replace: bool

    def is_live(self, folder: Path) -> bool:
        """Return whether anything is left to do: the last shard to be named does not have its name yet."""
        return os.path.lexists(folder / self.hidden(self.shards[-1]))

    def hidden(self, name: str) -> str:
        """Return where the shard lies until it gets its name."""
        return f".{name}{MARK}{self.token}"

    def to_bytes(self) -> bytes:
        """Return the two lines of the module's docstring."""
        data = {
            "fastio": _VERSION,
            "token": self.token,
            "replace": self.replace,
            "shards": list(self.shards),
            "remove": list(self.remove),
        }
        line = json.dumps(data).encode("ascii") + b"\n"
        return line + b"%08x\n" % crc32(line)

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> Record | None:
        """
        Read the record; None if it is incomplete, which means that nothing was committed. Raises StoreError if it is
        newer.
        """
        line, feed, crc = data.partition(b"\n")
        if crc != b"%08x\n" % crc32(line + feed):
            return None
        try:
            parsed = json.loads(line)
            if int(parsed["fastio"]) > _VERSION:
                raise StoreError(
                    f"{path}: written by a newer fastio, which has not finished a set of shards: upgrade fastio"
                )
            names = [*parsed["shards"], *parsed["remove"], parsed["token"]]
            is_ours = len(parsed["shards"]) > 0 and all(_NAME.fullmatch(name) for name in names)
            record = cls(parsed["token"], parsed["shards"], parsed["remove"], bool(parsed["replace"]))
        except (ValueError, KeyError, TypeError) as exc:
            raise StoreError(f"{path}: is not a journal that fastio writes ({exc!r}): remove it") from exc
        if not is_ours:
            raise StoreError(f"{path}: names files in other folders, which fastio never does: remove it")
        return record


class Journal:
    """The journal of a set, open and locked by this process until ``close``. Failures of the disk are OSErrors."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._folder = Path(path).parent
        self._fd = fd
        self._holds_record = False

    def commit(self, record: Record) -> None:
        """
        Sync the folder, then write and sync the record: unless this raises, the set's names now mean the new set.

        All hidden shards must exist.
        """
        for name in record.shards:
            (self._folder / record.hidden(name)).lstat()
        sync_folder(self._folder)
        try:
            write_all(self._fd, record.to_bytes())
            os.fsync(self._fd)
        except OSError:
            self._take_back()
            raise
        self._holds_record = True

    def carry_out(self, record: Record) -> None:
        """Give the shards their names and remove the rest of the old set; any process may repeat this."""
        self._holds_record = True
        *others, last = record.shards
        for name in others:
            self._name(record, name)
        for name in record.remove:
            (self._folder / name).unlink(missing_ok=True)
        sync_folder(self._folder)  # once the last one is named, all others are
        self._name(record, last)

    def clear(self) -> None:
        """Sync what was carried out, then delete the record."""
        sync_folder(self._folder)
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self._holds_record = False

    def take_up(self) -> None:
        """Carry out the record that a dead packer left, if it got that far; afterwards the journal is empty."""
        data = _read_all(self._fd)
        self._holds_record = bool(data)
        record = Record.from_bytes(data, path=self._path)
        if record is not None and record.is_live(self._folder):
            self.carry_out(record)
            _LOG.warning(
                "%s: a pack was interrupted while it named its %d shards; they have their names now",
                self._folder / record.shards[-1],
                len(record.shards),
            )
        self.clear()

    def close(self) -> None:
        """Unlock, and remove the journal unless its record is still to be carried out."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        # Failures here are harmless: an empty journal means nothing, and the next packer removes it.
        if not self._holds_record:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child may have the descriptor too
        with contextlib.suppress(OSError):
            os.close(fd)

    def _take_back(self) -> None:
        """Withdraw a record that could not be synced: it must not reappear when its shards are gone."""
        try:
            os.ftruncate(self._fd, 0)
        except OSError:
            Path(self._path).unlink()

    def _name(self, record: Record, name: str) -> None:
        hidden, path = self._folder / record.hidden(name), self._folder / name
        try:
            if record.replace:
                hidden.rename(path)
            # Killed between adding the second name and removing the first.
            elif path.exists() and path.samefile(hidden):
                hidden.unlink()
            else:
                move_to_free(str(hidden), str(path))
        except FileNotFoundError as exc:
            if not path.exists():  # otherwise it has its name: the step was done before
                raise StoreError(
                    f"{hidden}: a shard of a complete set is gone: remove {self._path} and pack again"
                ) from exc


def journal_path(path: str) -> str:
    """
    Return the path of a set's journal; ``path`` is one shard or the pattern for all, with the same result.

    >>> journal_path("data/out-%06d.tar"), journal_path("data/out-000001.tar")
    ('data/.out-#.tar.publishing', 'data/.out-#.tar.publishing')
    """
    target = Path(path)
    return str(target.parent / f".{_NUMBERS.sub('#', target.name)}{SUFFIX}")


def claim(path: str) -> Journal | None:
    """
    Lock a journal and carry out what a dead packer had committed; None while another packer has it.

    Raises OSError, or StoreError if the file system has no locks and another packer's journal is there.
    """
    journal = _locked(path, create=True)
    return None if journal is None else _taken_up(journal)


def wait_for(path: str) -> None:
    """Return when no process holds the journal any more, or may have released it. Raises OSError."""
    try:
        fd = _open(path)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def recover(path: str) -> None:
    """Carry out what a dead packer had committed; does nothing while one is at work. Errors as in ``claim``."""
    try:
        journal = _locked(path, create=False)
    except FileNotFoundError:
        return
    if journal is not None:
        _taken_up(journal).close()


def follow(path: str) -> Record | None:
    """
    Handle a journal as a reader: carry it out if its packer died, wait for a packer at work; then as ``peek``.

    A packer at work needs milliseconds. One that takes longer than a second (a stopped process, a server that does
    not answer) is not waited for.
    """
    until = time.monotonic() + _PATIENCE_S
    while Path(path).exists():
        try:
            recover(path)
        except (OSError, StoreError) as exc:
            _LOG.debug("%s: followed as it is: %s", path, exc)
            break
        if peek(path) is None or time.monotonic() > until:
            break
        time.sleep(_PAUSE_S)
    return peek(path)


def peek(path: str) -> Record | None:
    """Return the record if one is not carried out yet. Raises StoreError if that cannot be determined."""
    try:
        record = Record.from_bytes(Path(path).read_bytes(), path=path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(
            f"{path}: says which of two sets is the right one, but cannot be read ({exc.strerror}): check its "
            "permissions"
        ) from exc
    return record if record is not None and record.is_live(Path(path).parent) else None


def _taken_up(journal: Journal) -> Journal:
    try:
        journal.take_up()
    except BaseException:
        journal.close()
        raise
    return journal


def _locked(path: str, *, create: bool) -> Journal | None:
    """
    Return the journal, locked; None if another process holds it. Raises FileNotFoundError unless it exists or is
    created.
    """
    for _ in range(_ATTEMPTS):
        is_new = create and not os.path.lexists(path)
        try:
            fd = _open(path, os.O_CREAT | os.O_EXCL if is_new else 0)
        except (FileNotFoundError, FileExistsError):
            if create:
                continue  # another packer came or went
            raise
        is_ours = False
        try:
            if not _lock(path, fd, is_new=is_new):
                return None
            is_ours = _is_same(path, fd)  # its holder may have removed it
            if is_ours:
                return Journal(path, fd)
        finally:
            if not is_ours:
                os.close(fd)
    raise StoreError(f"{path}: other packs of this set keep coming and going: try again later")


def _open(path: str, flags: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o666)


def _lock(path: str, fd: int, *, is_new: bool) -> bool:
    """Lock the file. Returns False if another process has it; without locks, the creator of the file has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        if not is_new:
            raise StoreError(
                f"{path}: another pack of this set is naming its shards, or was killed while doing so: this file "
                f"system has no locks that could tell which ({exc.strerror}). Try again when it has finished; if none "
                "is running, give the hidden shards listed in this file their names and remove the file"
            ) from exc
    return True


def _is_same(path: str, fd: int) -> bool:
    try:
        there = Path(path).lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(fd))


def _read_all(fd: int) -> bytes:
    """Return the whole file; the descriptor's position stays at its beginning."""
    parts, at = [], 0
    while part := os.pread(fd, _READ_BYTES, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
