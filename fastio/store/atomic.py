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

__all__ = ["PartialFile", "publish", "remove_stale", "writing"]

_BUFFER_BYTES = 2 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class PartialFile:
    """
    A file under a hidden name beside ``path``, written front to back through a buffer.

    ``crc`` is the CRC-32 of all that went through ``write``, in order; ``skip`` and
    ``overwrite`` leave it alone. The descriptor holds a lock for as long as the writer lives,
    which is how ``remove_stale`` knows the dead from the living, on every host that shares
    the folder. All failures are StoreError that names ``path``.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.crc = 0
        self._size = 0
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self.partial, self.fd = _create(path)

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
            _write_all(self.fd, bytes(size))
        self._size += size

    def flush(self) -> None:
        """Hand the buffer to the kernel."""
        if not self._pending:
            return
        data = b"".join(self._pending) if len(self._pending) > 1 else self._pending[0]
        self._pending, self._pending_bytes = [], 0
        self.crc = crc32(data, self.crc)
        with writing(self.path):
            _write_all(self.fd, data)

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

    def rename(self) -> None:
        """Give the file its final name, replacing what lies there."""
        with writing(self.path):
            Path(self.partial).rename(self.path)
        os.close(self.fd)
        self.fd = -1

    def discard(self) -> None:
        """Remove the file; without effect after ``rename``, twice does no harm."""
        self._pending = []
        if self.fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                Path(self.partial).unlink()
            os.close(self.fd)
            self.fd = -1


def publish(files: Sequence[PartialFile], *, leftovers: Callable[[], Sequence[str]]) -> None:
    """
    Sync all files, then give them their names, remove the ``leftovers`` of a longer older set, sync the folder.

    A crash between two renames of a set leaves shards of two sets; their seals say so and a
    reader refuses them.
    """
    for file in files:
        file.sync()
    for file in files:
        file.rename()
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
        names = [entry.name for entry in entries if entry.name.startswith(".") and ".partial-" in entry.name]
    for name in names:
        if pattern.fullmatch(name[1:].rpartition(".partial-")[0]):
            _remove_if_dead(folder / name)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an OSError into one StoreError that names ``path`` and says what to do."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL:
            raise StoreError(
                f"{path}: the disk, quota or file size limit is full ({exc.strerror}); nothing was kept: "
                f"free space, or pack to another disk"
            ) from exc
        raise StoreError(f"{path}: cannot be written ({exc.strerror or exc}); nothing was kept") from exc


def _create(path: str) -> tuple[str, int]:
    """A new hidden file beside ``path``, locked."""
    target = Path(path)
    with writing(path):
        # Another pid namespace on the same folder may hold our pid's name: then the next number.
        for attempt in range(1000):
            partial = str(target.parent / f".{target.name}.partial-{os.getpid()}-{attempt}")
            with contextlib.suppress(FileExistsError):
                fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                # A file system without locks: nobody can prove us dead, so nobody will remove the file.
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_nlink:
                    return partial, fd
                os.close(fd)  # taken for stale by another writer before it was locked
        raise FileExistsError(errno.EEXIST, f"1000 partial files lie beside it, e.g. {partial}: remove them")


def _remove_if_dead(partial: Path) -> None:
    try:
        fd = os.open(partial, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return  # gone already, or not ours to touch
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
    except OSError:
        return  # a living writer holds it, or the file system has no locks
    finally:
        os.close(fd)


def _write_all(fd: int, data: Any) -> None:
    view = memoryview(data).cast("B")
    while len(view):
        view = view[os.write(fd, view) :]
