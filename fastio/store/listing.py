"""The visible files of a folder, and what an older fastio may have left between them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.atomic import MARK

__all__ = ["check_no_journal", "visible_names"]

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
