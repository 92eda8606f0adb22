"""SealedWriter, the writer of all formats: checks batches and keys, cuts shards, and says what holds if it fails."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from fastio.errors import SchemaError, StoreError
from fastio.store.arrays import check_names
from fastio.store.atomic import PartialFile, writing
from fastio.store.batch import CheckedBatch, check_batch
from fastio.store.file_writer import FileWriter
from fastio.store.format import Format
from fastio.store.key_ledger import KeyLedger
from fastio.store.publish import COMPLETE
from fastio.store.sample_store import SampleBatch
from fastio.store.undisturbed import undisturbed
from fastio.types.schema import Schema

__all__ = ["DuplicateKeyError", "Output", "SealedWriter", "encode_metadata"]


class DuplicateKeyError(SchemaError):
    """A key that the store has already; ``position`` is that of its sample in the batch. The writer is unchanged."""

    position = -1


class Output(Protocol):
    """The files of a store in progress: a single one, or the shards of a set."""

    @property
    def shard_bytes(self) -> int | None:
        """How many bytes of samples make a shard full; None: all samples go into one file."""
        ...

    def next_file(self) -> PartialFile:
        """Begin a file. Raises StoreError."""
        ...

    def end_file(self, file: FileWriter) -> None:
        """Finish a file that is full. Raises StoreError or OSError."""
        ...

    def commit(self, file: FileWriter, metadata: bytes) -> None:
        """Finish the last file, and give the store its name. Raises StoreError or OSError."""
        ...

    @property
    def is_published(self) -> bool:
        """Whether the store has its name, or will certainly get it."""
        ...

    def discard(self) -> None:
        """
        Remove everything written, unless it was published. Raises StoreError if that fails; calling it twice is
        harmless.
        """
        ...


class SealedWriter:
    """
    Writes one store as a file or a set of shards; see ``SampleWriter`` for the contract.

    Keys must be unique, not empty and without NUL. A batch is checked as a whole before its first byte is written, so
    a SchemaError (DuplicateKeyError for a key that comes twice) leaves the writer unchanged; any other failure removes
    everything written.
    """

    def __init__(self, path: str, form: Format, schema: Schema, output: Output) -> None:
        self.schema = schema
        self._path = path
        self._format = form
        self._output = output
        self._keys = KeyLedger(beside=path)
        self._open = True
        self._failure: BaseException | None = None
        try:
            check_names(schema)
            self._file = self._next_file(0)
        except BaseException:
            output.discard()
            raise

    def append(self, batch: SampleBatch) -> None:
        """Add samples in order. Raises SchemaError if the batch does not fit the schema."""
        self._require_open()
        checked = check_batch(self.schema, batch, path=self._path)
        if not checked.keys:
            return
        try:
            with writing(self._path):
                twice = self._keys.add(checked.joined_keys)
        except BaseException as exc:
            self._leave(exc)
            raise
        if twice is not None:
            error = DuplicateKeyError(f"key {checked.keys[twice]!r} comes twice; keys must be unique")
            error.position = twice
            raise error
        try:
            with writing(self._path):
                for start, stop in self._cut(checked):
                    self._file.append(checked, start, stop)
                self._file.file.flush()  # from here on, the views belong to the caller
        except BaseException as exc:
            self._leave(exc)
            raise

    def close(self, metadata: Mapping[str, Any] | None = None) -> None:
        """
        Write index and seal, fsync, rename. ``metadata`` is JSON kept in the store.

        Errors say whether the store has its name; errors and interrupts that come later get that as a note.
        """
        if not self._open:
            return
        try:
            encoded = encode_metadata(metadata)
            with writing(self._path):
                self._output.commit(self._file, encoded)
            self._open = False
            self._output.discard()  # what is left of it besides the store
            self._release()
        except BaseException as exc:
            self._leave(exc)
            raise

    def abort(self) -> None:
        """
        Remove everything written so far; does nothing after close. Raises StoreError that names what could not be
        removed.
        """
        if not self._open:
            return
        self._open = False
        with undisturbed():
            try:
                self._output.discard()
            finally:
                self._release()

    def _leave(self, error: BaseException) -> None:
        """End the writer because of an error, which gets a note of what now holds and its message does not say."""
        is_told = self._open and isinstance(error, StoreError)  # by whoever published
        try:
            self.abort()
        except StoreError as exc:
            error.add_note(str(exc))
        if self._output.is_published and not is_told:
            error.add_note(f"{self._path}: {COMPLETE}")
        self._failure = error

    def _release(self) -> None:
        self._file.release()
        with contextlib.suppress(OSError):  # a temporary file without a name
            self._keys.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif error is not self._failure:
            self._leave(error)

    def _require_open(self) -> None:
        if not self._open:
            raise StoreError(f"{self._path}: the writer is closed or aborted: create another store")

    def _next_file(self, first_key: int) -> FileWriter:
        file = self._output.next_file()
        return FileWriter(file, self._format, self.schema, self._keys, first_key=first_key)

    def _cut(self, batch: CheckedBatch) -> Iterator[tuple[int, int]]:
        """Split a batch where a shard is full, and start the next shard there; a sample is never split."""
        count, sample_bytes, limit = len(batch.keys), self._format.sample_bytes, self._output.shard_bytes
        if limit is None or sample_bytes is None:
            yield 0, count
            return
        sizes = {f.name: batch.arrays[f"{f.name}_sizes"] for f in self.schema.payload}
        start = 0
        for i, cost in enumerate(sample_bytes(self.schema, sizes, count).tolist()):
            filled = self._file.size_bytes
            if filled and filled + cost > limit:
                yield start, i
                start = i
                self._output.end_file(self._file)
                self._file.release()
                self._file = self._next_file(self._file.keys.stop)
            self._file.size_bytes += cost
        yield start, count


def encode_metadata(metadata: Mapping[str, Any] | None) -> bytes:
    """Return metadata as JSON. Raises SchemaError for what cannot be kept so."""
    try:
        return json.dumps(dict(metadata or {}), separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as exc:
        raise SchemaError(f"metadata cannot be kept as JSON ({exc})") from exc
