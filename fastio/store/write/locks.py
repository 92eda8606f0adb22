"""Writers of one file take turns, and one writes a set at a time: what they read is still true when they write."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.write.atomic import pwrite_all, undisturbed, writing

__all__ = [
    "Claim",
    "claimed",
    "packer_of",
    "turn",
    "turns",
]


_ATTEMPTS = 1000


@contextlib.contextmanager
def turn(path: str, on_wait: Callable[[], object] = lambda: None) -> Iterator[None]:
    """
    Hold the lock of those who write ``path``, the hidden file ``.NAME.lock`` beside it; waits for whoever has it.

    For steps of milliseconds, or as long as one shard takes to be written. Where it may take longer, pass ``on_wait``,
    which is called if somebody else has the lock, to say so. A file system without locks has no turns: there the
    last writer wins. Raises OSError.
    """
    lock = str(Path(path).parent / f".{Path(path).name}.lock")
    fd = _locked(lock, on_wait)
    try:
        yield
    finally:
        _let_go(lock, fd)


@contextlib.contextmanager
def turns(paths: Iterable[str]) -> Iterator[None]:
    """Hold the locks of those who write several files, taken in the same order by everybody; see ``turn``."""
    real = {str(Path(os.path.realpath(Path(path).parent)) / Path(path).name) for path in paths}
    with contextlib.ExitStack() as held:
        for path in sorted(real):
            held.enter_context(turn(path))
        yield


class Claim:
    """
    The right to write the set ``path``, of one work at a time: a pack, or the parts of one plan, which name the same
    ``work`` and share it; by default nobody does.

    It is a lock on the hidden file ``.NAME.packing.lock`` beside the set object, so it ends with the process. On a file
    system without locks it is the file itself, which a process that is killed leaves behind. Take it within the
    ``turn`` of the set, and release it outside. Raises StoreError if other work has it, and OSError.
    """

    def __init__(self, path: str, work: str = "") -> None:
        self._path = path
        self._lock = _claim_file(path)
        self._fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            self._take(work or secrets.token_hex(8))
        except BaseException:
            fd, self._fd = self._fd, -1
            os.close(fd)
            raise

    def _take(self, work: str) -> None:
        has_locks = is_free = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError:
            has_locks = False
        holder, _, who = os.pread(self._fd, 1 << 10, 0).decode(errors="replace").partition("\n")
        if not has_locks:
            is_free = not holder
        if not is_free and holder != work:
            advice = "" if has_locks else f". If none is, the file system has no locks: remove {self._lock}"
            raise StoreError(
                f"{self._path}: another process is packing this set ({who.strip() or 'unknown'}): wait for it, or "
                f"choose another name{advice}"
            )
        if is_free:
            note = f"{work}\n{_this_process()}\n".encode()
            try:
                os.ftruncate(self._fd, 0)
                pwrite_all(self._fd, note, 0)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(self._lock).unlink()
                raise
        if has_locks:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def release(self) -> None:
        """Let others write the set; calling it twice is harmless. Raises nothing."""
        with undisturbed():
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            try:
                with contextlib.suppress(OSError, StoreError), turn(self._path):
                    if _is_held(fd) and _is_there(self._lock, fd):  # else others share it
                        Path(self._lock).unlink()
            finally:
                with contextlib.suppress(OSError):
                    os.close(fd)


def packer_of(path: str) -> str:
    """Return which other process is packing the set ``path`` now, "process 12 of node3"; "" if none is known to be."""
    try:
        fd = os.open(_claim_file(path), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = os.pread(fd, 1 << 10, 0).decode(errors="replace").partition("\n")[2].strip()
        return "" if who == _this_process() else who or "an unknown process"
    except OSError:
        return ""  # a file system without locks
    finally:
        os.close(fd)
    return ""


def _claim_file(path: str) -> str:
    return str(Path(path).parent / f".{Path(path).name}.packing.lock")


def _this_process() -> str:
    return f"process {os.getpid()} of {socket.gethostname()}"


@contextlib.contextmanager
def claimed(path: str, work: str = "") -> Iterator[None]:
    """Hold the claim to a set of this machine; see ``Claim``. Raises StoreError."""
    with contextlib.ExitStack() as held:
        with writing(path), turn(path), undisturbed():
            held.callback(Claim(path, work).release)
        yield


def _locked(lock: str, on_wait: Callable[[], object]) -> int:
    for _ in range(_ATTEMPTS):
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        is_ours = False
        try:
            with contextlib.suppress(OSError):  # no locks here
                if not _is_held(fd):
                    on_wait()
                    fcntl.flock(fd, fcntl.LOCK_EX)
            is_ours = _is_there(lock, fd)
            if is_ours:
                return fd
        finally:
            if not is_ours:
                _let_go(lock, fd)
    raise StoreError(f"{lock}: other writers keep coming and going: try again later")


def _let_go(lock: str, fd: int) -> None:
    """Remove the file while it is locked: whoever waits for it then notices that it is gone, and makes another."""
    with undisturbed():
        with contextlib.suppress(OSError):  # an empty hidden file that stays does no harm
            if _is_held(fd) and _is_there(lock, fd):
                Path(lock).unlink()
        with contextlib.suppress(OSError):
            os.close(fd)


def _is_held(fd: int) -> bool:
    """Whether this process has the lock by now, or there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_there(lock: str, fd: int) -> bool:
    try:
        return os.path.samestat(Path(lock).lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False
