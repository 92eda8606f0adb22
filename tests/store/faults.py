"""Disks that fail, processes that are interrupted or killed, at the n-th call to the system."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CALLS = ("open", "write", "pwrite", "fsync", "ftruncate", "link", "rename", "unlink", "close", "fstat")


@dataclass
class Count:
    """How many of the counted calls were made."""

    made: int = 0


@contextmanager
def fault(
    at: int, act: Callable[[], None], *, calls: tuple[str, ...] = CALLS, lasting: bool = False
) -> Iterator[Count]:
    """``act`` before call number ``at`` (from 1) of these functions of ``os``; ``lasting``: before later ones too."""
    count = Count()
    real = {name: getattr(os, name) for name in calls}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            count.made += 1
            if name == "close":  # the descriptor is gone even if the system reports an error
                real[name](*args)
            if count.made == at or (lasting and count.made > at):
                act()
            return None if name == "close" else real[name](*args, **options)

        return call

    try:
        for name in calls:
            setattr(os, name, wrapped(name))
        yield count
    finally:
        for name in calls:
            setattr(os, name, real[name])


def fail() -> None:
    """The disk reports an error."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def full() -> None:
    """The disk takes nothing more."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    """Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def kill() -> None:
    """The process is gone."""
    os.kill(os.getpid(), signal.SIGKILL)
