"""SingleOutput: a store of one file, or one shard that is sealed alone."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fastio.store.atomic import PartialFile, writing
from fastio.store.file_writer import FileWriter, SealedAlone
from fastio.store.foreign_sidecar import SIDECAR_SUFFIX
from fastio.store.publish import publish_file
from fastio.store.seal import Seal, read_seal
from fastio.store.stale import remove_stale
from fastio.store.write_target import Target

__all__ = ["SingleOutput"]


class SingleOutput:
    """
    One file under its final name once it is complete; see ``Output``.

    Of a shard that is sealed ``alone``, the folder is not looked at: sets have thousands of shards. One of the same
    seal that has the name already is as good.
    """

    shard_bytes = None

    def __init__(self, target: Target, *, alone: SealedAlone | None = None) -> None:
        self._target = target
        self._alone = alone
        self._file: PartialFile | None = None
        if alone is None:
            target.check()
            with writing(target.path):
                remove_stale(target.folder, target.pattern)

    def next_file(self) -> PartialFile:
        """See ``Output``."""
        self._file = PartialFile(self._target.path)
        return self._file

    def end_file(self, file: FileWriter) -> None:
        """There is only one."""
        raise AssertionError(file.file.path)

    def commit(self, file: FileWriter, metadata: bytes) -> None:
        """See ``Output``."""
        seal = file.finish(metadata, self._alone)
        if self._alone is None:
            self._target.check_free()
        elif not self._target.overwrite and self._is_there(seal):
            return
        publish_file(file.file, replace=self._target.overwrite)
        if self._alone is None and self._target.overwrite:  # those of what had the name before
            with contextlib.suppress(OSError):
                Path(self._target.path + SIDECAR_SUFFIX).unlink()

    def _is_there(self, seal: Seal) -> bool:
        """Whether somebody else has made the same shard meanwhile."""
        other = read_seal(self._target.path, self._target.format.seal_at)
        return other is not None and other.pack() == seal.pack()

    @property
    def is_published(self) -> bool:
        """See ``Output``."""
        return self._file is not None and self._file.is_published

    def discard(self) -> None:
        """See ``Output``."""
        if self._file is not None:
            self._file.discard()
