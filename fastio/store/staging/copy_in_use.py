"""CopyInUse: one file that is read while it is copied, or after."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.store.atomic import pwrite_all
from fastio.store.files.local import aligned
from fastio.store.staging.background import BackgroundStage
from fastio.store.staging.block_record import blocks_of
from fastio.store.staging.file_copy import hidden_files, is_copy
from fastio.store.staging.handover import hand_over
from fastio.store.staging.stage_plan import CopyContent
from fastio.store.staging.stage_record import StageRecord, mending_command

__all__ = ["CopyInUse"]

_LOG = logging.getLogger(__name__)

_MOST_DISTRUSTED = 1000  # ranges, before nothing of a copy is read any more

Version = tuple[int, int, int, int]  # device, inode, size, mtime_ns


class CopyInUse:
    """
    What is there of the copy of one file, whichever process makes it; see LocalCopy.

    A finished copy was compared with every checksum, and is told by its seal, or by the record of the copied set
    ``result``. Of one that is under way, a block counts if its record has it; its CRC-32 is compared when this process
    first reads it. Without locks: a forked process uses it too.
    """

    def __init__(self, content: CopyContent, path: Path, result: str) -> None:
        self.stage: BackgroundStage | None = None  # of this process
        self._content = content
        self._path = path
        self._result = result
        self._finished: Version | None = None
        self._verified: dict[tuple[int, int, int], Version] = {}  # blocks, by start, stop and CRC-32
        self._distrusted: list[tuple[int, int]] = []
        self._is_reported = False

    def read(self, start: int, stop: int) -> NDArray[np.uint8] | None:
        """See LocalCopy."""
        if self._is_distrusted(start, stop):
            return None
        try:
            data = self._read_finished(start, stop)
            if data is None:
                data = self._read_blocks(start, stop)
                if data is None:  # it may have got its name meanwhile
                    data = self._read_finished(start, stop)
        except OSError:
            return None
        return data

    def offer(self, start: int, data: Any) -> None:
        """See LocalCopy."""
        if self.stage is None or not self.stage.offer(self._content.name, start, data):
            hand_over(self._path.parent, self._content, start, data)

    def distrust(self, start: int, stop: int) -> None:
        """See LocalCopy."""
        self._distrusted.append((start, stop))

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

    def _read_blocks(self, start: int, stop: int) -> NDArray[np.uint8] | None:
        partial, record = hidden_files(self._path)
        try:
            size, content = self._content.size, self._content.file_crc
            blocks = blocks_of(record, size=size, content=content, start=start, stop=stop)
            if blocks is None:
                return None
            fd = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(fd)
            version = status.st_dev, status.st_ino, 0, 0  # its mtime changes with each block
            if all(self._is_verified(fd, version, block) for block in blocks):
                return _bytes(fd, start, stop)
            return None
        finally:
            os.close(fd)

    def _is_verified(self, fd: int, version: Version, block: tuple[int, int, int]) -> bool:
        start, stop, checksum = block
        if self._verified.get(block) == version:
            return True
        data = _bytes(fd, start, stop)
        if data is None or crc32(data) != checksum:
            return False
        self._verified[block] = version
        return True

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
