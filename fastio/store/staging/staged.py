"""What ``Remote(stage=...)`` of a dataset does: the copy is waited for, or read while it is made."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreError
from fastio.store.files import ByteSource, Read
from fastio.store.files.local import aligned, is_local
from fastio.store.files.remote.disk import Claim, Piece
from fastio.store.files.remote.local_copy import WantedRanges
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_threads import close_at_exit
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.formats.format import Format
from fastio.store.index.seal import SEAL_SIZE, SealAt, always_at, find_seal
from fastio.store.index.sealed import bytes_from
from fastio.store.sets.members import MemberShards
from fastio.store.staging.file_copy import DownloadMover, StageStopped, hidden_copy, is_copy
from fastio.store.staging.plan import CopyContent, member_files
from fastio.store.staging.record import StageRecord, mending_command
from fastio.store.staging.stage import Waiting, check_stage, copy_store, logged_meter, stage
from fastio.store.write.atomic import pwrite_all

__all__ = [
    "BackgroundStage",
    "StageInUse",
    "background_stage",
    "staged_path",
]


_LOG = logging.getLogger(__name__)


def staged_path(path: str | Path, options: Remote, read: Read = "auto") -> str | Path:
    """
    Return the path of the copy in ``options.stage``, made first if it is not there; ``path`` itself without a stage.

    A URL whose copy need not be waited for stays, too: ``open_store`` reads it and what is there of the copy. Files
    that are to be mapped, or read by pread, must be there.

    Every process of a node calls it: the first copies, the others wait as long as that makes progress. Progress is
    logged. Raises what ``stage`` raises; for a URL that stays, only what is wrong with the name of the folder.
    """
    folder = options.stage
    if folder is None:
        return path
    check_stage(folder)
    if not (options.stage_wait or is_local(str(path)) or read in ("map", "pread")):
        return path
    return stage(str(path), folder, options=options, meter=logged_meter(str(path), folder)).path


class StageInUse:
    """The stage of a store behind a URL that is opened: its files get the copies that are there, or will be."""

    def __init__(self, folder: str, options: Remote) -> None:
        self._folder = folder
        self._options = options
        self._copies: list[CopyInUse] = []
        self._is_trusted = True

    def use_for_set_object(self, source: ByteSource) -> None:
        """Have a set object read from its copy."""
        self._use(source, always_at(-SEAL_SIZE))

    def use_for_shard(self, source: ByteSource, form: Format) -> None:
        """Have a sealed file read from its copy."""
        self._use(source, form.seal_at)

    def use_for_members(self, shards: MemberShards) -> None:
        """Have the shards of a set read from their copies."""
        found = shards.set_object
        result = folder_of(found.path, self._options)[1]
        for source, file in zip(shards.joined.sources, member_files(found, found.path, self._options), strict=True):
            self._copy(source, file.content, result)

    def _use(self, source: ByteSource, seal_at: SealAt) -> None:
        try:
            seal = find_seal(source.path, source.size, partial(bytes_from, source), seal_at)
        except StoreError:  # whoever opens it says what is wrong
            return
        name = folder_of(source.path, self._options)[1]
        self._copy(source, CopyContent(name, source.size, seal.file_crc, seal_at), name)

    def _copy(self, source: ByteSource, content: CopyContent, result: str) -> None:
        if isinstance(source, RemoteSource):
            source.local_copy = copy = CopyInUse(content, Path(self._folder) / content.name, result)
            if not self._is_trusted:
                copy.drop(0, content.size)
            self._copies.append(copy)

    def distrust(self, error: StoreError) -> None:
        """Read no index of a copy any more: one that was read is damaged. The log names the copies that may be."""
        self._is_trusted = False
        for path in filter(None, (copy.whole() for copy in self._copies)):
            command = mending_command(path) or "fastio stage --check"
            _LOG.warning("%s: read again without the copy %s, which %s mends", error, path, command)

    def begin(self, url: str) -> None:
        """Begin to copy, for as long as one of these files is open; what epochs fetch anyway goes into the copies."""
        stage = background_stage(url, self._folder, self._options)
        for copy in self._copies:
            copy.stage = stage


# CopyInUse: one file that is read while it is copied, or after.

_MOST_DISTRUSTED = 1000  # ranges, before nothing of a copy is read any more

Version = tuple[int, int, int, int]  # device, inode, size, mtime_ns


class CopyInUse:
    """
    What is there of the copy of one file, whichever process makes it; see LocalCopy.

    A finished copy was compared with every checksum, and is told by its seal, or by the record of the copied set
    ``result``. Of one that is under way, what any process has written is read. Without locks: a forked process uses it
    too.
    """

    def __init__(self, content: CopyContent, path: Path, result: str) -> None:
        self.stage: BackgroundStage | None = None  # of this process
        self._content = content
        self._path = path
        self._result = result
        self._disk = hidden_copy(path, content)
        self._finished: Version | None = None
        self._distrusted: list[tuple[int, int]] = []
        self.is_writing = content.seal_at is not None  # else nothing tells one version from another
        self._is_reported = False

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """See LocalBytes."""
        if self._is_distrusted(start, stop):
            return [(start, stop, None)]
        try:
            data = self._read_finished(start, stop)
            if data is None:
                pieces = self._disk.pieces(start, stop)
                if all(found is None for _, _, found in pieces):  # it may have got its name meanwhile
                    data = self._read_finished(start, stop)
        except OSError:
            return [(start, stop, None)]
        return pieces if data is None else [(start, stop, data)]

    def missing(self, start: int, stop: int) -> int | None:
        """See LocalCopy."""
        return self._disk.missing(start, stop) if self.whole() is None else 0

    def claim(self, start: int, stop: int) -> Claim | None:
        """See LocalBytes."""
        return self._disk.claim(start, stop)

    def keep(self, start: int, data: Any) -> None:
        """See LocalBytes. Only what somebody began to copy is written to."""
        if self.is_writing:
            try:
                self._disk.write(start, data)
            except OSError:  # whoever copies meets it too, and says so
                self.is_writing = False

    def drop(self, start: int, stop: int) -> None:
        """See LocalBytes."""
        self._distrusted.append((start, stop))
        self._disk.drop(start, stop)

    def mend(self, start: int, data: Any) -> None:
        """See LocalCopy. Its mtime stays: who has the copy open goes on reading it."""
        end, problem = start + len(data), ""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                status = os.fstat(fd)
                if not self._is_finished(_version(status)):
                    return
                pwrite_all(fd, data, start)
                os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(fd)
            self._distrusted = [each for each in self._distrusted if each != (start, end)]
        except FileNotFoundError:
            return
        except OSError as exc:
            problem = f", but cannot be mended there ({exc.strerror or exc})"
        if not self._is_reported:
            self._is_reported = True
            _LOG.warning(
                "%s: bytes %d to %d were damaged on this machine, and were fetched again%s: check the disk, and the "
                "rest of the copy by %s",
                self._path,
                start,
                end,
                problem or " and mended",
                mending_command(str(self._path)) or "fastio verify",
            )

    def whole(self) -> str | None:
        """See LocalCopy."""
        try:
            return str(self._path) if self._is_finished(_version(self._path.stat())) else None
        except OSError:
            return None

    def _read_finished(self, start: int, stop: int) -> NDArray[np.uint8] | None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return _bytes(fd, start, stop) if self._is_finished(_version(os.fstat(fd))) else None
        finally:
            os.close(fd)

    def _is_finished(self, version: Version) -> bool:
        if self._finished == version:
            return True
        is_ours = self._is_listed(version) if self._content.seal_at is None else is_copy(self._path, self._content)
        if not is_ours or _version(self._path.stat()) != version:
            return False
        self._finished, self._distrusted = version, []  # what was wrong was fetched again
        return True

    def _is_listed(self, version: Version) -> bool:
        """Whether a file without a seal is one that fastio copied."""
        record = StageRecord.read(self._path.parent, self._result)
        return record is not None and self._content.name in record.names and version[2] == self._content.size

    def _is_distrusted(self, start: int, stop: int) -> bool:
        distrusted = self._distrusted
        if len(distrusted) > _MOST_DISTRUSTED:
            return True
        return any(first < stop and last > start for first, last in distrusted)


def _bytes(fd: int, start: int, stop: int) -> NDArray[np.uint8] | None:
    """Return the bytes of a range, read-only; None if the file is shorter."""
    data, done = aligned(start, stop - start), 0
    while done < len(data):
        got = os.preadv(fd, [data[done:].data], start + done)
        if got == 0:
            return None
        done += got
    data.setflags(write=False)
    return data


def _version(status: os.stat_result) -> Version:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# BackgroundStage: copies a store in a thread of this process, while epochs read it.

_HEAD_START_S = 1.0  # at most, for a first batch that is asked for as soon as the store is opened
_JOIN_S = 5.0
_LOOK_S = 1.0  # between looks whether another process still copies

_lock = threading.Lock()
_running: weakref.WeakValueDictionary[tuple[str, str, int], BackgroundStage] = weakref.WeakValueDictionary()


def background_stage(path: str, folder: str, options: Remote) -> BackgroundStage:
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

    def __init__(self, path: str, folder: str, options: Remote) -> None:
        self._work = _Work(path, folder, options)
        self._close = weakref.finalize(self, self._work.close)
        self._close.atexit = False
        close_at_exit(self._work)
        self._work.thread.start()

    def bring_first(self, wanted: WantedRanges) -> None:
        """
        Bring these ranges before all else, in this order, until the next ones are given. Of several processes with one
        folder, each brings its own.
        """
        self._work.mover.wanted = wanted

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the copy is whole, or was given up; False when not done in time."""
        self._work.thread.join(timeout_s)
        return not self._work.thread.is_alive()

    def close(self) -> None:
        """End copying; what is there stays. Twice does no harm."""
        self._close()


class _Work:
    """The thread, which must not hold the BackgroundStage: nobody would let go of that."""

    def __init__(self, path: str, folder: str, options: Remote) -> None:
        self._path, self._folder, self._options = path, folder, options
        self._process = os.getpid()
        self.mover = DownloadMover()
        self.thread = threading.Thread(target=self._run, name="fastio-stage", daemon=True)

    def close(self) -> None:
        """End the thread, unless this process was forked from the one that has it."""
        if self._process != os.getpid():
            return
        self.mover.stop()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(_JOIN_S)

    def _run(self) -> None:
        waiting = Waiting(_LOG.info, pause=self._pause)
        try:
            self.mover.give_way(_HEAD_START_S)
            copy_store(self._path, self._folder, self._options, self.mover, waiting)
        except StageStopped:
            return
        except (StoreError, OSError) as exc:
            if not self.mover.is_stopped:
                _LOG.warning("%s: is no longer copied to %s, and read from both: %s", self._path, self._folder, exc)
        finally:
            self.mover.stop()

    def _pause(self, seconds: float) -> None:
        """Wait for the process that copies, and bring meanwhile what loaders of this one want; see Waiting."""
        if seconds:
            self.mover.bring_first()
        self.mover.pause(_LOOK_S if seconds else 0)
