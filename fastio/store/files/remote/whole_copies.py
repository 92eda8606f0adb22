"""WholeCopies: reads a store from this machine alone, once all its objects were copied."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from fastio.errors import StoreError
from fastio.store.files.pread import PreadFiles, PreadSource
from fastio.store.files.remote.remote_source import RemoteSource

__all__ = ["WholeCopies"]

_LOG = logging.getLogger(__name__)


class WholeCopies:
    """The files of a store whose objects all have a finished copy; safe to share between threads, and over a fork."""

    def __init__(self, sources: Sequence[RemoteSource]) -> None:
        self._sources = sources
        self._finished: list[PreadSource] = []  # of the first objects
        self._files: PreadFiles | None = None
        self._is_given_up = not sources
        self._lock = threading.Lock()

    def files(self) -> PreadFiles | None:
        """Return the files, or None while a copy is not finished."""
        if self._files is not None or self._is_given_up or not self._lock.acquire(blocking=False):
            return self._files  # nobody waits for the lock: one who forked may have had it
        try:
            self._look()
        except StoreError as exc:
            self._give_up(exc)
        finally:
            self._lock.release()
        return self._files

    def give_up(self, error: StoreError) -> None:
        """Go back to the objects: a copy can no longer be read."""
        self._give_up(error)

    def close(self) -> None:
        """Close the files that nobody reads."""
        files = self._files
        if files is not None:
            files.close()

    def _look(self) -> None:
        while len(self._finished) < len(self._sources):
            copy = self._sources[len(self._finished)].local_copy
            path = None if copy is None else copy.whole()
            if path is None:
                return
            source = PreadSource.open(path)
            source.release()
            self._finished.append(source)
        self._files = PreadFiles(self._finished)

    def _give_up(self, error: StoreError) -> None:
        if not self._is_given_up:
            _LOG.warning("%s: from now on, samples are fetched again", error)
        self._is_given_up, self._files = True, None
