"""The visible files of a folder, and the hidden ones that killed packers or an older fastio left."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from pathlib import Path

from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.write.atomic import MARK
from fastio.types.units import counted, size

__all__ = [
    "check_no_journal",
    "held_partials",
    "remove_stale",
    "visible_names",
]


_NUMBERS = re.compile(r"(?:%0?[0-9]*d|[0-9])+")
_JOURNAL = ".publishing"


def visible_names(folder: str | Path) -> list[str]:
    """Return the sorted names of a folder's visible files; none for what is no folder. Raises StoreError."""
    return sorted(name for name in _listed(folder) if not name.startswith("."))


def check_no_journal(path: str) -> None:
    """
    Raise StoreError if a fastio before version 2 of the seal was killed while it gave these shards their names.

    It kept a journal beside them: their names with ``#`` for the number, and ``.publishing``. Until it is carried
    out, the folder holds shards of two sets. ``path`` is the pattern of the shards, or one of them.
    """
    journal = Path(path).parent / f".{_NUMBERS.sub('#', Path(path).name)}{_JOURNAL}"
    if not os.path.lexists(journal):
        return
    begun = f"{journal}: an older fastio was interrupted while it named the shards of a set"
    hidden = _still_hidden(journal)
    if not hidden:
        raise StoreError(f"{begun}, before any had its name or after all had: remove this file")
    renames = ", ".join(hidden[:3]) + (", ..." if len(hidden) > 3 else "")
    raise StoreError(
        f"{begun}: that set is complete, but {len(hidden)} of its shards are still hidden ({renames}). Give them their "
        'names (without the dot and all from ".partial-"), remove the shards listed in this file under "remove", then '
        "this file"
    )


def _still_hidden(journal: Path) -> list[str]:
    """Return the hidden shards of a committed journal, in the order of their names; none if nothing is left to do."""
    try:
        line, feed, crc = journal.read_bytes().partition(b"\n")
        if crc != b"%08x\n" % crc32(line + feed):
            return []  # was never committed
        record = json.loads(line)
        names = [f".{name}{MARK}{record['token']}" for name in record["shards"]]
    except OSError as exc:
        raise StoreError(f"{journal}: cannot be read ({exc.strerror}): check its permissions") from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise StoreError(f"{journal}: is not a journal that fastio writes ({exc!r}): remove it") from exc
    last_is_hidden = bool(names) and os.path.lexists(journal.parent / names[-1])
    return sorted(name for name in names if os.path.lexists(journal.parent / name)) if last_is_hidden else []


def _listed(folder: str | Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise StoreError(f"{folder}: cannot be listed ({exc.strerror}); check its permissions") from exc


# Hidden files of packers: those of living ones are locked, and those of dead ones are removed.

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
