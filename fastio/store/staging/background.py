"""BackgroundStage: copies a store in a thread of this process, while epochs read it."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any

from fastio.errors import StoreError
from fastio.store.files.remote.interpreter_exit import close_at_exit
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.staging.arrived_ranges import ArrivedRanges
from fastio.store.staging.movers import DownloadMover, StageStopped
from fastio.store.staging.progress_log import logged_meter
from fastio.store.staging.stage import copy_store
from fastio.store.staging.stage_lock import Waiting

__all__ = ["BackgroundStage", "background_stage"]

_LOG = logging.getLogger(__name__)
_JOIN_S = 5.0
_LOOK_S = 1.0  # between looks whether another process still copies

_lock = threading.Lock()
_running: weakref.WeakValueDictionary[tuple[str, str, int], BackgroundStage] = weakref.WeakValueDictionary()


def background_stage(path: str, folder: str, options: RemoteOptions) -> BackgroundStage:
    """Begin to copy a store into a folder, and return what copies it: one for each process, store and folder."""
    key = path, str(Path(folder).absolute()), os.getpid()
    with _lock:
        stage = _running.get(key)
        if stage is None:
            stage = _running[key] = BackgroundStage(path, folder, options)
        return stage


class BackgroundStage:
    """
    A copy on its way, as long as somebody holds this; see ``stage``.

    Of the processes that stage to one folder, one copies and the others wait for their turn: if it dies, the next one
    goes on. What ends it early is logged in one line.
    """

    def __init__(self, path: str, folder: str, options: RemoteOptions) -> None:
        self._process = os.getpid()
        self._arrived = ArrivedRanges()
        self._work = _Work(path, folder, options, self._arrived)
        self._close = weakref.finalize(self, self._work.close)
        self._close.atexit = False
        close_at_exit(self._work)
        self._work.thread.start()

    def offer(self, name: str, start: int, data: Any) -> bool:
        """
        Put bytes of a file into its copy; returns whether this process makes the copy. A full disk is not an error.
        """
        file = self._arrived.of(name)
        if file is None or self._process != os.getpid():
            return False
        try:
            file.write(start, data)
        except OSError:  # whoever copies meets it too, and says so
            self._arrived.end()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the copy is whole, or was given up; False when not done in time."""
        self._work.thread.join(timeout_s)
        return not self._work.thread.is_alive()

    def close(self) -> None:
        """End copying; what is there stays. Twice does no harm."""
        self._close()


class _Work:
    """The thread, which must not hold the BackgroundStage: nobody would let go of that."""

    def __init__(self, path: str, folder: str, options: RemoteOptions, arrived: ArrivedRanges) -> None:
        self._path, self._folder, self._options, self._arrived = path, folder, options, arrived
        self._process = os.getpid()
        self._mover = DownloadMover()
        self.thread = threading.Thread(target=self._run, name="fastio-stage", daemon=True)

    def close(self) -> None:
        """End the thread, unless this process was forked from the one that has it."""
        if self._process != os.getpid():
            return
        self._mover.stop()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(_JOIN_S)

    def _run(self) -> None:
        pause = self._mover.pause
        waiting = Waiting(_LOG.info, pause=lambda seconds: pause(_LOOK_S if seconds else 0))
        meter = logged_meter(self._path, self._folder)
        try:
            copy_store(self._path, self._folder, self._options, self._mover, waiting, meter, self._arrived)
        except StageStopped:
            return
        except (StoreError, OSError) as exc:
            if not self._mover.is_stopped:
                _LOG.warning("%s: is no longer copied to %s, and read from both: %s", self._path, self._folder, exc)
        finally:
            self._arrived.end()
            self._mover.stop()
