"""Who copies to a folder: one process at a time; the others wait for as long as it makes progress."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import writing

__all__ = ["LOCK_NAME", "stage_lock"]

LOCK_NAME = ".fastio-stage.lock"
_POLL_S = 0.05


@contextmanager
def stage_lock(
    folder: Path, task: str, *, wait_s: float, on_wait: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """
    Hold the lock of a folder; yields a function to call after each step of progress.

    While another process has it, ``on_wait`` is told once for whom this one waits. Raises StoreError if that process
    makes no progress for ``wait_s`` seconds. The lock of a process that dies is free at once.
    """
    path = folder / LOCK_NAME
    with writing(str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(fd, path, wait_s, on_wait)
        with writing(str(path)):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}: {task}".encode(errors="replace"), 0)
        yield lambda: os.utime(fd)
    finally:
        os.close(fd)


def _wait(fd: int, path: Path, wait_s: float, on_wait: Callable[[str], None]) -> None:
    is_told = False
    last, since = -1, time.monotonic()
    while not _is_ours(fd, path):
        progress = os.fstat(fd).st_mtime_ns
        if progress != last:
            last, since = progress, time.monotonic()
        holder = os.pread(fd, 4096, 0).decode(errors="replace") or "another process"
        if not is_told:
            is_told = True
            on_wait(f"{path.parent}: waiting for {holder}")
        if time.monotonic() - since > wait_s:
            raise StoreError(
                f"{path.parent}: {holder} has made no progress for {wait_s:g} s: end it, or choose another folder"
            )
        time.sleep(_POLL_S)


def _is_ours(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        raise StoreError(
            f"{path.parent}: its file system has no locks ({exc.strerror}): choose a disk of this machine"
        ) from exc
    return True
