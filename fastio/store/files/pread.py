"""How bytes come from disks: through a mapping, or by pread into memory.

A mapping costs nothing for cached pages, and the native core reads ahead for the others. Network file systems answer
page faults one by one and in small pieces, and a server's error or a truncated file becomes a SIGBUS that kills the
process. There, ``pread`` fetches the spans of about 16 MiB of samples at a time, and an error becomes a status.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.store.mapping import readable
from fastio.types.spans import Spans

__all__ = ["Fetched", "Read", "ShardFiles", "network_file_system", "reads_by_pread"]

Read = Literal["auto", "map", "pread"]

_KEPT_OPEN = 64  # descriptors kept open between look-ups; one look-up may need more

_LIBC = ctypes.CDLL(None, use_errno=True)

# f_type of statfs(2), from linux/magic.h and the sources of the file systems.
_NETWORK = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x65735546: "fuse",  # sshfs, gcsfuse, s3 mounts, virtiofs, ...
    0x0BD00BD0: "lustre",
    0x00C36400: "ceph",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x01021997: "9p",
    0x5346414F: "afs",
}


def reads_by_pread(read: Read, paths: Sequence[str]) -> bool:
    """
    Decide whether to read files by ``pread``: as told, or with "auto", if one of them is on a network file system.
    """
    if read not in get_args(Read):
        raise ValueError(f"read={read!r}: expected one of {', '.join(map(repr, get_args(Read)))}")
    if read == "auto":
        return any(network_file_system(Path(path)) is not None for path in paths)
    return read == "pread"


def network_file_system(path: Path) -> str | None:
    """
    Return the kind of network file system that a file or folder is on, or None for a local or unknown one.

    Links are followed.
    """
    answer = (ctypes.c_long * 64)()  # struct statfs begins with f_type and is shorter than this
    if _LIBC.statfs(os.fsencode(path), answer) != 0:
        return None
    return _NETWORK.get(answer[0] & 0xFFFFFFFF)


class _Descriptor:
    """An open file, closed with its last user, which may be a native job."""

    def __init__(self, path: str) -> None:
        self.number = -1
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __del__(self) -> None:
        if self.number >= 0:
            with contextlib.suppress(OSError):  # it was only read, so errors of close do not matter
                os.close(self.number)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Spans that are being read into memory."""

    spans: Spans
    job: _native.Job
    error: NDArray[np.int32]

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """
        Return the spans in memory, and a status for each (TRUNCATED, IO_ERROR) if some could not be read, else None.
        """
        self.job.wait()
        if not self.error.any():
            return self.spans, None
        status = np.where(self.error == 0, _native.OK, np.where(self.error < 0, _native.TRUNCATED, _native.IO_ERROR))
        spans = self.spans
        sizes = np.where(self.error == 0, spans.sizes, 0)  # what could not be read is not decoded
        kept = Spans(spans.buffers, spans.shard, spans.starts, sizes, spans.checksums, spans.intervals)
        return kept, status.astype(np.int32)


class ShardFiles:
    """
    The files of a store for ``pread``: opened on first use, at most 64 kept open.

    Raises StoreError if a file has been replaced or changed (by size and time of change) since it was opened. Threads
    may share it, and it survives a fork; it is pickled without its descriptors.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._stamps = [_stamp_of(path) for path in paths]
        self._open: dict[int, _Descriptor] = {}

    def fetch(self, spans: Spans, *, pool: _native.ThreadPool | None, ring: _native.BufferRing | None) -> Fetched:
        """Begin to read the spans into memory, from ``ring`` if there is one; without a pool, read them now."""
        descriptors = np.full(len(self._paths), -1, np.int32)
        files = [(shard, self._file(shard)) for shard in np.unique(spans.shard).tolist()]
        for shard, file in files:
            descriptors[shard] = file.number
        total = max(1, int(spans.sizes.sum()))
        out = np.empty(total, np.uint8) if ring is None else ring.acquire(total)
        error = np.zeros(len(spans), np.int32)
        job = _native.read_spans(spans, descriptors, files, out, error, pool)
        # One memory for all shards; the shard's number gives the file's name in messages.
        memory = _native.Buffers([out] * len(self._paths))
        starts = np.cumsum(spans.sizes) - spans.sizes
        staged = Spans(memory, spans.shard, starts, spans.sizes, spans.checksums, spans.intervals)
        return Fetched(staged, job, error)

    def _file(self, shard: int) -> _Descriptor:
        """Return an open file. Two threads may open it at the same time: one descriptor is then closed after use."""
        file = self._open.pop(shard, None)
        if file is None:
            path = self._paths[shard]
            try:
                file = _Descriptor(path)
                stamp = _stamp(os.fstat(file.number))
            except OSError as exc:
                raise StoreError(f"{path}: can no longer be read ({exc.strerror}): open the store again") from exc
            if stamp != self._stamps[shard]:
                raise StoreError(f"{path}: was replaced or changed since it was opened: open the store again")
        self._open[shard] = file  # the last one is the latest
        for oldest in list(self._open)[:-_KEPT_OPEN]:
            self._open.pop(oldest, None)
        return file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


def _stamp_of(path: str) -> tuple[int, int]:
    with readable(path):
        return _stamp(Path(path).stat())


def _stamp(about: os.stat_result) -> tuple[int, int]:
    return about.st_size, about.st_mtime_ns
