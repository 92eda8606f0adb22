"""Who copies to a folder: one process at a time; the others wait for as long as it makes progress."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import writing

__all__ = ["LOCK_NAME", "Waiting", "stage_lock"]

LOCK_NAME = ".fastio-stage.lock"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Waiting:
    """
    How a process waits for another one that copies: ``on_wait`` is told once for whom, and after ``wait_s`` seconds
    without progress there it gives up. ``pause`` sleeps between looks, and is called with 0
    at each step of this process's own progress; what it raises ends the copying.
    """

    on_wait: Callable[[str], None]
    wait_s: float = 600.0
    pause: Callable[[float], None] = time.sleep


@contextmanager
def stage_lock(folder: Path, task: str, waiting: Waiting) -> Iterator[Callable[[], None]]:
    """
    Hold the lock of a folder; yields a function to call after each step of progress.

    Raises StoreError if the process that has it makes no progress for too long. The lock of a process that dies is
    free at once.
    """
    path = folder / LOCK_NAME
    with writing(str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(fd, path, waiting)
        with writing(str(path)):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}: {task}".encode(errors="replace"), 0)

        def progressed() -> None:
            waiting.pause(0)
            os.utime(fd)

        yield progressed
    finally:
        os.close(fd)


def _wait(fd: int, path: Path, waiting: Waiting) -> None:
    is_told = False
    last, since = -1, time.monotonic()
    while not _is_ours(fd, path):
        progress = os.fstat(fd).st_mtime_ns
        if progress != last:
            last, since = progress, time.monotonic()
        holder = os.pread(fd, 4096, 0).decode(errors="replace") or "another process"
        if not is_told:
            is_told = True
            waiting.on_wait(f"{path.parent}: waiting for {holder}")
        if time.monotonic() - since > waiting.wait_s:
            raise StoreError(
                f"{path.parent}: {holder} has made no progress for {waiting.wait_s:g} s: end it, or choose another "
                "folder"
            )
        waiting.pause(_POLL_S)


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
