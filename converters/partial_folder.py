"""A folder that is filled under a hidden name beside its own, and the removal of what dead processes left."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastio.errors import StoreError

__all__ = ["partial_folder"]

_ATTEMPTS = 1000


@contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """
    Yield a new folder beside ``target``, removed at the end unless it was renamed.

    A lock on it lives as long as this process. Folders of the same target whose lock is free were left by killed
    processes: they are removed first. On a file system without locks, nothing is removed.
    """
    _remove_stale(target)
    partial, handle = _create(target)
    try:
        yield partial
    finally:
        _remove(partial)
        os.close(handle)


def _create(target: Path) -> tuple[Path, int]:
    for attempt in range(_ATTEMPTS):  # one of our pid may be at work on another host
        partial = target.with_name(f".{target.name}.partial-{os.getpid()}-{attempt}")
        with suppress(FileExistsError):
            partial.mkdir()
            handle = _locked(partial)
            if handle is not None:
                return partial, handle
    raise StoreError(f"{target}: {_ATTEMPTS} partial folders are beside it, e.g. {partial}: remove them")


def _locked(partial: Path) -> int | None:
    """A descriptor that holds the new folder's lock; None where another process took it for stale before that."""
    try:
        handle = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        return handle  # no locks here: nobody can prove us dead, so nobody will remove the folder
    if os.fstat(handle).st_nlink:
        return handle
    os.close(handle)
    return None


def _remove_stale(target: Path) -> None:
    name = re.compile(re.escape(f".{target.name}.partial-") + r"\d+-\d+")
    for folder in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        with suppress(OSError):  # gone already, held, no folder, not ours, or there are no locks
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    """As far as possible, and without recursion, which ``shutil.rmtree`` has: trees may be deeper than calls."""
    folders = [folder]
    for each in folders:  # grows meanwhile
        with suppress(OSError):
            for path in each.iterdir():
                if path.is_dir() and not path.is_symlink():
                    folders.append(path)
                else:
                    path.unlink()
    for each in reversed(folders):
        with suppress(OSError):
            each.rmdir()
