"""Writes a file beside its final name and gives it that name only when it is whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastio._native import crc32
from fastio.errors import StoreError

__all__ = ["PartialFile", "exists", "publish", "remove_stale", "write_all", "writing"]

_BUFFER_BYTES = 2 << 20
_LONG_BYTES = 16 << 20  # a part of this is too long to be copied beside the others
_MARK = ".partial-"
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_KEPT = "nothing new was kept under this name, what lay there is untouched"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class PartialFile:
    """
    A file under a hidden name beside ``path``, written front to back through a buffer.

    ``crc`` is the CRC-32 of all that went through ``write``, in order; ``skip`` and
    ``overwrite`` leave it alone. The descriptor holds a lock for as long as the writer lives,
    which is how ``remove_stale`` knows the dead from the living, on every host that shares
    the folder. A file of a set is created beside the ``first`` one, whose lock stands for all
    of them: the others may ``rest`` without a descriptor. All failures are StoreError that names ``path``.
    """

    def __init__(self, path: str, *, first: PartialFile | None = None) -> None:
        self.path = path
        self.crc = 0
        self._size = 0
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._first = first
        self._is_hidden = True
        self.partial: str
        self._fd: int
        self.partial, self._fd = _create(path) if first is None else _create_beside(path, _token(first.partial))

    @property
    def fd(self) -> int:
        """The descriptor, at the end of the file; opened again after a ``rest``."""
        if self._fd < 0:
            with writing(self.path):
                self._fd = os.open(self.partial, os.O_RDWR | os.O_CLOEXEC)
                os.lseek(self._fd, 0, os.SEEK_END)
        return self._fd

    @property
    def size(self) -> int:
        """Bytes written so far, buffered ones included: where the next ``write`` lands."""
        return self._size

    def write(self, data: Any) -> None:
        """Append any contiguous buffer; it must not change before the next ``flush``."""
        size = data.nbytes if hasattr(data, "nbytes") else len(data)
        if size == 0:
            return
        self._pending.append(data)
        self._size += size
        self._pending_bytes += size
        if self._pending_bytes >= _BUFFER_BYTES:
            self.flush()

    def write_parts(self, parts: Sequence[Any], size: int) -> None:
        """Append several buffers of ``size`` bytes in all: one call a sample instead of one a part."""
        self._pending.extend(parts)
        self._size += size
        self._pending_bytes += size
        if self._pending_bytes >= _BUFFER_BYTES:
            self.flush()

    def skip(self, size: int) -> None:
        """Append zeros that ``crc`` does not see: the place of something known later."""
        self.flush()
        with writing(self.path):
            write_all(self.fd, bytes(size))
        self._size += size

    def flush(self) -> None:
        """Hand the buffer to the kernel."""
        if not self._pending:
            return
        parts, self._pending = self._pending, []
        is_long = self._pending_bytes > _LONG_BYTES
        self._pending_bytes = 0
        for data in parts if is_long else [b"".join(parts) if len(parts) > 1 else parts[0]]:
            self.crc = crc32(data, self.crc)
            with writing(self.path):
                write_all(self.fd, data)

    def overwrite(self, start: int, data: bytes) -> None:
        """Fill bytes that were skipped."""
        self.flush()
        with writing(self.path):
            done = os.pwrite(self.fd, data, start)
            if done != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Return when the bytes are on the disk."""
        self.flush()
        with writing(self.path):
            os.fsync(self.fd)

    def rest(self) -> None:
        """Close the descriptor until it is needed again: a set may have more files than a process descriptors."""
        self.flush()
        if self._first is not None:
            self._close()

    def rename(self, *, replace: bool) -> None:
        """Give the file its final name, StoreError where something lies there that must not be replaced."""
        with writing(self.path):
            if replace:
                Path(self.partial).rename(self.path)
            else:
                _rename_to_free(self.partial, self.path)
        self._is_hidden = False
        self._close()

    def discard(self) -> None:
        """Remove the file; without effect after ``rename``, twice does no harm."""
        self._pending = []
        if self._is_hidden:
            self._is_hidden = False
            with contextlib.suppress(FileNotFoundError):
                Path(self.partial).unlink()
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def publish(files: Sequence[PartialFile], *, leftovers: Callable[[], Sequence[str]], replace: bool) -> None:
    """
    Sync all files, then give them their names, remove the ``leftovers`` of a longer older set, sync the folder.

    A crash between two renames of a set leaves shards of two sets; their seals say so and a
    reader refuses them. The first file is renamed last: until then its lock guards the others.
    """
    for file in files:
        file.sync()
        file.rest()
    named: list[str] = []
    try:
        for file in (*files[1:], files[0]):
            file.rename(replace=replace)
            named.append(file.path)
    except BaseException:
        for path in () if replace else named:  # another packer was faster; these names were free, so they are ours
            Path(path).unlink()
        raise
    with writing(files[0].path):
        for path in leftovers():
            Path(path).unlink()
        folder = os.open(Path(files[0].path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_stale(folder: Path, pattern: re.Pattern[str]) -> None:
    """Remove partial files of writers that died; ``pattern`` matches the final names they were meant for."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.name.startswith(".") and _MARK in entry.name]
    names = sorted(entry.name for entry in found if not entry.is_dir(follow_symlinks=False))
    ours = [name for name in names if pattern.fullmatch(name[1:].rpartition(_MARK)[0])]
    tokens = {_token(name) for name in ours}
    held = {_token(name) for name in names if _token(name) in tokens and _is_held(folder / name)}
    for name in reversed(ours):  # the first file of a set last: nobody takes its token while others are left
        if _token(name) not in held:
            with contextlib.suppress(OSError):  # gone already, or not ours to remove
                (folder / name).unlink()


def exists(path: str) -> StoreError:
    """The error where something lies under a name that must not be replaced."""
    return StoreError(f"{path}: exists; choose another name, or --overwrite (in Python overwrite=True)")


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an OSError into one StoreError that names ``path`` and says what to do."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL:
            raise StoreError(
                f"{path}: the disk, quota or file size limit is full ({exc.strerror}): free space, or choose "
                f"another disk; {_KEPT}"
            ) from exc
        raise StoreError(f"{path}: cannot be written ({exc.strerror or exc}); {_KEPT}") from exc


def _create(path: str) -> tuple[str, int]:
    """A new hidden file beside ``path``, locked."""
    with writing(path):
        # Another pid namespace on the same folder may hold our pid's name: then the next number.
        for attempt in range(1000):
            partial = _hidden(path, f"{os.getpid()}-{attempt}")
            with contextlib.suppress(FileExistsError):
                fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                # A file system without locks: nobody can prove us dead, so nobody will remove the file.
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_nlink:
                    return partial, fd
                os.close(fd)  # taken for stale by another writer before it was locked
        raise FileExistsError(errno.EEXIST, f"1000 partial files lie beside it, e.g. {partial}: remove them")


def _create_beside(path: str, token: str) -> tuple[str, int]:
    """A new hidden file beside ``path``, of the set whose first file is locked under this token."""
    with writing(path):
        partial = _hidden(path, token)
        return partial, os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _hidden(path: str, token: str) -> str:
    target = Path(path)
    return str(target.parent / f".{target.name}{_MARK}{token}")


def _token(partial: str) -> str:
    """What all files of one writer's set have in their names."""
    return partial.rpartition(_MARK)[2]


def _is_held(partial: Path) -> bool:
    """Whether a living writer holds the file, as far as anybody can tell."""
    try:
        fd = os.open(partial, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to touch
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True  # or the file system has no locks
    finally:
        os.close(fd)
    return False


def _rename_to_free(partial: str, path: str) -> None:
    """A rename that replaces nothing: a second name, which the kernel refuses where there is one, then one less."""
    try:
        try:
            os.link(partial, path)
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            if os.path.lexists(path):  # the best that a file system without hard links allows
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc
            Path(partial).rename(path)
        else:
            Path(partial).unlink()
    except FileExistsError as exc:
        raise exists(path) from exc


def write_all(fd: int, data: Any) -> None:
    """Write the whole of a contiguous buffer."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[os.write(fd, view) :]
