"""Warns of files of a source that changed after shards were made of it: many a plan has but their names and sizes."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from fastio.converters.planned.planned_set import PlannedSet
from fastio.store.files.local import is_local
from fastio.types.units import counted

__all__ = ["warn_of_newer_files"]

_LOG = logging.getLogger(__name__)


def warn_of_newer_files(planned: PlannedSet, kept: Collection[int]) -> None:
    """
    Log one line if files of the source are newer than the oldest shard of this plan that is there: the set may then
    hold old and new content. ``kept`` are the shards that stay.

    Both times of a file count, that of its content and that of its inode (ctime): unpacking an archive sets the first
    one back. A copy of the source is newer, too, so this is no error. Nothing is said of URLs.
    """
    oldest = _oldest_shard(planned, kept)
    if oldest is None:
        return
    count, first = 0, ""
    for path in planned.source.files():
        if is_local(path) and _changed_ns(path) > oldest:
            count, first = count + 1, first or path
    if count:
        again = "remove what was appended, and append again" if planned.options.append else "pack anew with --overwrite"
        _LOG.warning(
            "%s: %s of the source, e.g. %s, changed or came here after the first shard was made: if the content is no "
            "longer the same, the set mixes old and new: %s",
            planned.target.path,
            counted(count, "file"),
            first,
            again,
        )


def _oldest_shard(planned: PlannedSet, kept: Collection[int]) -> int | None:
    """When the oldest shard of the plan was finished, in ns; None if none is there, or they lie behind a URL."""
    if not is_local(planned.folder.path):
        return None
    # What is to be overwritten may belong to any plan.
    numbers = kept if planned.options.overwrite else range(len(planned.plan))
    names = [name for name in map(planned.name, numbers) if name in planned.present]
    times = []
    for name in names:
        try:
            times.append(Path(planned.folder.full(name)).stat().st_mtime_ns)
        except OSError:  # another process has removed it meanwhile
            continue
    return min(times, default=None)


def _changed_ns(path: str) -> int:
    """When a file changed last; 0 if it cannot be looked at, which is found out when it is read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a million of them
    except OSError:
        return 0
    return max(status.st_mtime_ns, status.st_ctime_ns)
