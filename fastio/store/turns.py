"""Writers of one file take turns: what they read before they write is still true when they write."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.undisturbed import undisturbed

__all__ = ["turn"]

_ATTEMPTS = 1000


@contextlib.contextmanager
def turn(path: str) -> Iterator[None]:
    """
    Hold the lock of those who write ``path``, the hidden file ``.NAME.lock`` beside it; waits for whoever has it.

    Only for steps of milliseconds. A file system without locks has no turns: there the last writer wins. Raises
    OSError.
    """
    lock = str(Path(path).parent / f".{Path(path).name}.lock")
    fd = _locked(lock)
    try:
        yield
    finally:
        _let_go(lock, fd)


def _locked(lock: str) -> int:
    for _ in range(_ATTEMPTS):
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        is_ours = False
        try:
            with contextlib.suppress(OSError):  # no locks here
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
