"""Hidden files of packers: those of living ones are locked, and those of dead ones are removed."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from pathlib import Path

from fastio.store.atomic import MARK
from fastio.types.units import counted, size

__all__ = ["held_partials", "remove_stale"]

_NAMED = 3  # most files named in a message
_LOG = logging.getLogger(__name__)


def remove_stale(folder: Path, pattern: re.Pattern[str]) -> None:
    """
    Remove partial files of dead writers, and log a warning with their names and size.

    ``pattern`` matches the final names they were meant for. Raises OSError if the folder cannot be listed; files that
    cannot be removed stay.
    """
    removed: list[tuple[str, int]] = []
    for name in _partials(folder, pattern):
        size_bytes = _remove(folder / name)
        if size_bytes:  # an empty one may be a living writer's, which then takes another name
            removed.append((name, size_bytes))
    if removed:
        _LOG.warning("%s", _report(folder, removed))


def held_partials(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """
    Return the names of partial files for these final names that a living writer holds, as far as can be told.

    Raises OSError if the folder cannot be listed.
    """
    return [name for name in _partials(folder, pattern) if _is_held(folder / name)]


def _partials(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    with os.scandir(folder) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if entry.name.startswith(".") and MARK in entry.name and not entry.is_dir(follow_symlinks=False)
        )
    return [name for name in names if pattern.fullmatch(name[1:].rpartition(MARK)[0])]


def _remove(partial: Path) -> int:
    """Remove a file that nobody holds, under its lock. Returns its size, 0 if it stays."""
    try:
        fd = os.open(partial, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return 0  # already gone, or not ours to remove
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size_bytes = os.fstat(fd).st_size
        partial.unlink()
    except OSError:
        return 0  # its writer lives, or the file system has no locks, or it is not ours to remove
    finally:
        os.close(fd)
    return size_bytes


def _report(folder: Path, removed: list[tuple[str, int]]) -> str:
    total = size(sum(size_bytes for _, size_bytes in removed))
    if len(removed) == 1:
        return f"{folder / removed[0][0]}: removed ({total}), left by a process that was killed"
    names = ", ".join(name for name, _ in removed[:_NAMED]) + (", ..." if len(removed) > _NAMED else "")
    files = counted(len(removed), "hidden file")
    return f"{folder}: removed {files} ({total}), left by processes that were killed: {names}"


def _is_held(partial: Path) -> bool:
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
