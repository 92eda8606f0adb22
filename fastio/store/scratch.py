"""ScratchFolder: files on the local disk on their way into an object store, removed whatever happens."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from fastio.errors import StoreError
from fastio.store.write.atomic import writing
from fastio.types.units import size

__all__ = ["ScratchFolder"]

_PREFIX = "fastio-scratch-"
_LOG = logging.getLogger(__name__)


class ScratchFolder:
    """
    A folder in TMPDIR for files that nobody else needs; ``close`` removes it with all that is in it.

    It is locked (``flock``) while its owner lives: a folder without a lock was left by a process that was killed, and
    goes when the next one is made. Raises StoreError that names TMPDIR if it cannot be written.
    """

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        _remove_stale(parent)
        with writing(str(parent)):
            self.path, self._fd = _created(parent)

    def file(self, name: str) -> Path:
        """Return the path of a file here."""
        return self.path / name

    def require(self, size_bytes: int, *, advice: str) -> None:
        """Raise StoreError with this advice unless so many bytes are free on the disk."""
        with writing(str(self.path)):
            free = shutil.disk_usage(self.path).free
        if free < size_bytes:
            raise StoreError(
                f"{self.path.parent}: {size(size_bytes)} are needed for files on their way to the object store, "
                f"{size(free)} are free: {advice}"
            )

    def close(self) -> None:
        """Remove the folder; twice does no harm."""
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _created(parent: Path) -> tuple[Path, int]:
    """Create a folder and lock it. Raises OSError."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        fd = _locked(path)
        if fd is not None:
            return path, fd  # else another process took it for stale before it was locked


def _locked(path: Path) -> int | None:
    """Return a descriptor that locks a folder; None if it is locked by another process, or gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        is_ours = False
    if not is_ours:
        os.close(fd)
        return None
    return fd


def _remove_stale(parent: Path) -> None:
    """Remove the folders of processes that were killed, and log their names."""
    for path in sorted(parent.glob(f"{_PREFIX}*")):
        try:
            is_ours = path.lstat().st_uid == os.getuid()
        except FileNotFoundError:
            continue  # its owner has just removed it
        fd = _locked(path) if is_ours else None
        if fd is None:
            continue
        try:
            shutil.rmtree(path, ignore_errors=True)
            _LOG.warning("%s: removed, left by a process that was killed", path)
        finally:
            os.close(fd)
