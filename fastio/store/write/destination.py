"""ShardDestination: where shards are written, one after the other: a folder, or by scratch files an object store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from fastio.errors import StoreError
from fastio.store.files.local import is_local
from fastio.store.protocol import SampleBatch, SampleWriter
from fastio.store.scratch import ScratchFolder
from fastio.store.store_folder import StoreFolder
from fastio.store.write.output import SingleOutput
from fastio.store.write.target import Target
from fastio.store.write.writer import SealedAlone, SealedWriter
from fastio.types.schema import Schema

__all__ = [
    "ShardDestination",
]


_ADVICE = "set TMPDIR to a folder on a larger disk, or choose a smaller --shard-size (in Python shard_bytes)"


class ShardDestination:
    """
    Writes shards, each sealed alone, into a folder of this machine or an object store.

    Into an object store, each shard is first written to a scratch file in TMPDIR. It is uploaded while the next one is
    made; at most one upload is under way, so at most two shards lie on the disk. ``shard_bytes`` is what a shard is
    expected to take, for which free space is required beforehand. Use it as a context manager: at its end, scratch
    files are gone, also after an error. Shards that were finished stay in the folder.
    """

    def __init__(self, folder: StoreFolder, *, shard_bytes: int = 0) -> None:
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._scratch: ScratchFolder | None = None if is_local(folder.path) else ScratchFolder()
        self._upload: _Upload | None = None
        self._uploaded: set[str] = set()

    def writer(self, name: str, schema: Schema, *, plan: int, number: int, overwrite: bool = False) -> SampleWriter:
        """
        Return the writer of one shard; ``close`` gives the shard its name, or begins to upload it.

        A shard of this name and the same content does no harm: nothing changes. ``close`` raises StoreError for
        another file of this name unless ``overwrite``, and the error of the upload before.
        """
        alone = SealedAlone(plan, number)
        if self._scratch is None:
            target = Target.of(self._folder.full(name), overwrite=overwrite)
            return SealedWriter(target.path, target.format, schema, SingleOutput(target, alone=alone))
        self._scratch.require(self._shard_bytes, advice=_ADVICE)
        target = Target.of(str(self._scratch.file(name)), overwrite=False)
        inner = SealedWriter(target.path, target.format, schema, SingleOutput(target, alone=alone))
        return _UploadingWriter(inner, self._folder.full(name), lambda: self._begin_upload(name, overwrite=overwrite))

    def is_finished(self, name: str) -> bool:
        """Return whether a shard whose writer was closed is in the folder by now."""
        return self._scratch is None or name in self._uploaded

    def wait(self) -> None:
        """Return when all finished shards are in the folder. Raises StoreError for one that could not be uploaded."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.wait()

    def join(self) -> None:
        """Return when no upload is under way, whatever became of it."""
        if self._upload is not None:
            self._upload.join()

    def close(self) -> None:
        """Wait for the upload that is under way, and remove what is left on the disk. Raises nothing."""
        self.join()
        if self._scratch is not None:
            self._scratch.close()

    def _begin_upload(self, name: str, *, overwrite: bool) -> None:
        assert self._scratch is not None
        self.wait()
        file = self._scratch.file(name)

        def upload() -> None:
            try:
                self._folder.put(name, file, replace=overwrite)
                self._uploaded.add(name)
            finally:
                file.unlink(missing_ok=True)

        self._upload = _Upload(upload)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self.close()


class _Upload:
    """One call in a thread that does not keep the process alive."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fastio-upload", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as exc:  # handed to whoever waits
            self._error = exc

    def join(self) -> None:
        """Return when the call has ended, whatever became of it."""
        self._thread.join()

    def wait(self) -> None:
        """Return when the call has ended. Raises its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error


class _UploadingWriter:
    """Writes a shard to a scratch file, which ``close`` hands on; see SampleWriter."""

    def __init__(self, inner: SealedWriter, url: str, finished: Callable[[], None]) -> None:
        self.schema = inner.schema
        self._inner = inner
        self._url = url
        self._finished: Callable[[], None] | None = finished

    def append(self, batch: SampleBatch) -> None:
        """See SampleWriter."""
        with self._naming_both():
            self._inner.append(batch)

    def close(self, metadata: Mapping[str, Any] | None = None) -> None:
        """See SampleWriter; the upload has begun when it returns."""
        finished, self._finished = self._finished, None
        if finished is not None:
            with self._naming_both():
                self._inner.close(metadata)
            finished()

    def abort(self) -> None:
        """See SampleWriter."""
        self._finished = None
        self._inner.abort()

    @contextmanager
    def _naming_both(self) -> Iterator[None]:
        """Let errors of the disk name the object, too, and say how to choose another disk."""
        try:
            yield
        except StoreError as exc:
            if isinstance(exc.__cause__, OSError):
                raise StoreError(f"{self._url}: {exc}; {_ADVICE}") from exc
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
