"""Removes the hidden files of tasks that were killed, once they are dead."""

from __future__ import annotations

import time

from fastio.store.atomic import writing
from fastio.store.stale import held_partials, remove_stale
from fastio.store.write_target import Target

__all__ = ["remove_partials"]

_DYING_S = 5.0  # after which a file that is locked belongs to a packer that lives
_PAUSE_S = 0.02


def remove_partials(target: Target) -> None:
    """
    Remove the unfinished shards of dead tasks under the names of a local target.

    A task that was killed a moment ago still holds its lock: waits for that, a few seconds at most. What is held
    longer belongs to another packer of the same shards, and stays.
    """
    deadline = time.monotonic() + _DYING_S
    with writing(target.path):
        while True:
            remove_stale(target.folder, target.pattern)
            if not held_partials(target.folder, target.pattern) or time.monotonic() > deadline:
                return
            time.sleep(_PAUSE_S)
