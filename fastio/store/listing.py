"""What lies under the names of shards at the moment, even while a set is being replaced (see ``journal``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.journal import SUFFIX, Record, follow, journal_path, peek

__all__ = ["located", "shard_names"]


def shard_names(folder: Path, *, carry_out: bool) -> dict[str, str]:
    """
    Return the names of a folder's visible files, each with the name under which its content lies.

    The two differ for shards of a complete set that are not named yet. With ``carry_out``, they are named if
    possible. Raises StoreError if the folder cannot be listed.
    """
    names = _listed(folder)
    journals = [str(folder / name) for name in names if name.startswith(".") and name.endswith(SUFFIX)]
    records = [_record(each, carry_out=carry_out) for each in journals]
    if journals:
        names = _listed(folder)
    found = {name: name for name in names if not name.startswith(".")}
    for record in filter(None, records):
        for name in record.remove:
            found.pop(name, None)
        found.update({name: record.hidden(name) for name in record.shards if record.hidden(name) in names})
    return found


def located(paths: Sequence[str], *, carry_out: bool) -> list[str]:
    """
    Return where the content of these shards of one set, or of this one file, lies. Raises StoreError as
    ``journal.follow``.
    """
    record = _record(journal_path(paths[0]), carry_out=carry_out) if paths else None
    if record is None:
        return list(paths)
    hidden = [str(Path(path).with_name(record.hidden(Path(path).name))) for path in paths]
    return [there if os.path.lexists(there) else path for there, path in zip(hidden, paths, strict=True)]


def _record(journal: str, *, carry_out: bool) -> Record | None:
    return follow(journal) if carry_out else peek(journal)


def _listed(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as exc:
        raise StoreError(f"{folder}: cannot be listed ({exc.strerror}); check its permissions") from exc
