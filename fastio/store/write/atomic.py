"""Files written beside their final names, under hidden names until they are complete; and how they get their names."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fastio._native import crc32
from fastio.errors import StoreError

__all__ = [
    "COMPLETE",
    "MARK",
    "PartialFile",
    "exists",
    "move_to_free",
    "publish_file",
    "publish_shard",
    "pwrite_all",
    "sync_folder",
    "undisturbed",
    "write_all",
    "writing",
]


_BUFFER_BYTES = 2 << 20
# Of one call to the system: a longer one has ext4 look for as large a piece of free memory, which costs up to 7 times
# the CPU time where memory is fragmented.
_WRITE_BYTES = 256 << 10
_LONG_BYTES = 16 << 20  # a part of this is too long to be copied beside the others
MARK = ".partial-"
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_KEPT = "nothing new was kept under this name, and what was there is untouched"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class PartialFile:
    """
    A file under a hidden name beside ``path``, written front to back through a buffer.

    ``crc`` is the CRC-32 of everything that went through ``write``, in order; ``skip`` and ``overwrite`` do not
    change it. The descriptor holds a lock while the writer lives, by which ``remove_stale`` tells dead writers from
    living ones, on every host that shares the folder. All failures are StoreErrors that name ``path``.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.crc = 0
        self._size = 0
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._is_published = self._is_discarded = False
        self.partial, self._fd = _create(path)

    @property
    def fd(self) -> int:
        """The descriptor, at the end of the file; -1 once it is closed."""
        return self._fd

    @property
    def size(self) -> int:
        """Bytes written so far, including buffered ones: the position of the next ``write``."""
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
        """Append several buffers of ``size`` bytes in total: one call per sample instead of one per part."""
        self._pending.extend(parts)
        self._size += size
        self._pending_bytes += size
        if self._pending_bytes >= _BUFFER_BYTES:
            self.flush()

    def skip(self, size: int) -> None:
        """Append zeros that ``crc`` ignores, to be filled in later."""
        self.flush()
        with writing(self.path):
            write_all(self.fd, bytes(size))
        self._size += size

    def flush(self) -> None:
        """Pass the buffer to the kernel."""
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
            pwrite_all(self.fd, data, start)

    def sync(self) -> None:
        """Return when the bytes are on the disk."""
        self.flush()
        with writing(self.path):
            os.fsync(self.fd)

    @property
    def is_published(self) -> bool:
        """Whether the file has its final name, or will certainly get it."""
        return self._is_published

    def published(self) -> None:
        """Note that the file belongs to its final name: ``discard`` then leaves it alone."""
        self._is_published = True

    def discard(self) -> None:
        """
        Close the file, and remove it unless it was published. Raises StoreError if that fails; calling it twice is
        harmless.
        """
        self._pending = []
        try:
            if not self._is_published and not self._is_discarded:
                self._is_discarded = True
                Path(self.partial).unlink(missing_ok=True)
        except OSError as exc:
            raise StoreError(
                f"{self.partial}: could not be removed ({exc.strerror}); the next pack to the same name removes it"
            ) from exc
        finally:
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # the bytes were synced before, or are not wanted
                os.close(fd)


def exists(path: str) -> StoreError:
    """Return the error for a name that is taken and must not be replaced."""
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
    """Create a new hidden file beside ``path``, locked."""
    with writing(path):
        # Another pid namespace may use our pid in the same folder: then try the next number.
        for attempt in range(1000):
            partial = _hidden(path, f"{os.getpid()}-{attempt}")
            with contextlib.suppress(FileExistsError):
                fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                if _is_locked(partial, fd):
                    return partial, fd
        raise FileExistsError(errno.EEXIST, f"1000 partial files are beside it, e.g. {partial}: remove them")


def _is_locked(partial: str, fd: int) -> bool:
    """Lock a new file. Returns False, with the file closed, if another writer considered it stale before that."""
    is_ours = False
    try:
        is_ours = _flock(fd) and os.fstat(fd).st_nlink > 0
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    finally:
        if not is_ours:
            os.close(fd)
    return is_ours


def _flock(fd: int) -> bool:
    """Lock the file. Returns False if another process holds it, True if there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # without locks, nobody can tell that this process is dead, so nobody removes the file
    return True


def _hidden(path: str, token: str) -> str:
    target = Path(path)
    return str(target.parent / f".{target.name}{MARK}{token}")


def move_to_free(partial: str, path: str) -> None:
    """
    Rename without replacing. Raises OSError, FileExistsError if the name is taken.

    It creates a second name, which the kernel refuses if it exists, and then removes the first.
    """
    try:
        os.link(partial, path)
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):  # the best that a file system without hard links allows
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), partial, None, path) from exc
        Path(partial).rename(path)
    else:
        Path(partial).unlink()


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: Any) -> None:
    """Write the whole of a contiguous buffer. Raises OSError."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[_some(os.write(fd, view[:_WRITE_BYTES])) :]


def pwrite_all(fd: int, data: Any, start: int) -> None:
    """Write the whole of a contiguous buffer at a position of the file. Raises OSError."""
    view = memoryview(data).cast("B")
    while len(view):
        done = _some(os.pwrite(fd, view[:_WRITE_BYTES], start))
        view, start = view[done:], start + done


def _some(done: int) -> int:
    """Raise OSError if nothing was written: a disk that reports no error would be retried for ever."""
    if done <= 0:
        raise OSError(errno.EIO, "the system wrote 0 bytes and reported no error")
    return done


# Gives finished files their names, and says what holds if that fails.

COMPLETE = "the new store is complete under its name"
_FILE = "the new file is complete under its name"


def publish_file(file: PartialFile, *, replace: bool) -> None:
    """
    Sync the file, rename it in one step, sync the folder.

    On StoreError before ``file.is_published``, nothing has changed under the name; after it, the new file has the
    name. Ctrl-C is held back between the two.
    """
    file.sync()
    with undisturbed():
        with writing(file.path):
            _name(file, replace=replace)
        with _complete(file.path, "the folder could not be synced ({}): after a power failure it may be gone"):
            sync_folder(Path(file.path).parent)


def publish_shard(file: PartialFile) -> None:
    """
    Sync the file and give it its name, which must be free. The folder is not synced: a set does that once, before its
    set object.

    Raises StoreError; ``file.is_published`` tells whether the file has its name nevertheless.
    """
    file.sync()
    with undisturbed(), writing(file.path):
        try:
            move_to_free(file.partial, file.path)
        except FileExistsError as exc:
            raise exists(file.path) from exc
        except OSError:
            if _has_name(file):
                file.published()
            raise
        file.published()


def _name(file: PartialFile, *, replace: bool) -> None:
    """Rename the file and note that; an error may occur when the new name already exists."""
    try:
        if replace:
            Path(file.partial).rename(file.path)
        else:
            move_to_free(file.partial, file.path)
    except FileExistsError as exc:
        raise exists(file.path) from exc
    except OSError as exc:
        if not _has_name(file):
            raise
        file.published()
        raise StoreError(
            f"{file.path}: {_FILE}, but its hidden name could not be removed ({exc.strerror}): remove {file.partial}"
        ) from exc
    file.published()


def _has_name(file: PartialFile) -> bool:
    """Return whether the file already has its final name."""
    try:
        return os.path.samestat(os.fstat(file.fd), Path(file.path).lstat())
    except OSError:
        return False


@contextlib.contextmanager
def _complete(path: str, problem: str) -> Iterator[None]:
    """Turn an OSError into a StoreError that says that the new store exists."""
    try:
        yield
    except OSError as exc:
        where = f", {exc.filename}" if exc.filename else ""
        raise StoreError(f"{path}: {_FILE}, but {problem.format(f'{exc.strerror or exc}{where}')}") from exc


# Protects a few steps that Ctrl-C and SIGTERM must not interrupt.

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # SIGINT is delivered last: its handler raises


@contextmanager
def undisturbed() -> Iterator[None]:
    """
    Hold back Ctrl-C and other signals with Python handlers; their handlers run when the block ends.

    Only for steps of milliseconds. Python runs handlers in the main thread; in any other thread, there is nothing to
    hold back. Signals without a handler in Python, such as SIGKILL, still end the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, frame: held.append((number, frame)))
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number, frame in held:
            handlers[signal.Signals(number)](number, frame)
