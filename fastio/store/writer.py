"""SealedWriter, the writer of all formats: gathers the index, cuts shards, seals the files and publishes them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError, StoreError
from fastio.store.arrays import IndexHeader, Place, check_names, expected_arrays, unit_bytes
from fastio.store.atomic import PartialFile, writing
from fastio.store.batch import CheckedBatch, check_batch
from fastio.store.format import Ending, ShardWriter
from fastio.store.key_ledger import KeyLedger, KeyRange
from fastio.store.publish import COMPLETE, publish_file, publish_set
from fastio.store.sample_store import SampleBatch
from fastio.store.seal import Seal, set_checksum
from fastio.store.spool import Spool
from fastio.store.target import Target
from fastio.store.undisturbed import undisturbed
from fastio.types.schema import Schema

__all__ = ["DuplicateKeyError", "SealedAlone", "SealedWriter"]


class DuplicateKeyError(SchemaError):
    """A key that the store has already; ``position`` is that of its sample in the batch. The writer is unchanged."""

    position = -1


@dataclass(frozen=True, slots=True)
class SealedAlone:
    """One shard of a set that is sealed before the others are known: its plan (0: none), and its number there."""

    plan: int
    number: int


@dataclass(slots=True)
class _Shard:
    """One file in progress, with its part of the index."""

    file: PartialFile
    writer: ShardWriter
    first: dict[str, int]  # row of each index array
    keys: KeyRange
    size_bytes: int = 0  # by Format.sample_bytes


class SealedWriter:
    """
    Writes one store as a file or a set of shards; see ``SampleWriter`` for the contract.

    Keys must be unique, not empty and without NUL. A batch is checked as a whole before its first byte is written, so
    a SchemaError (DuplicateKeyError for a key that comes twice) leaves the writer unchanged; any other failure removes
    everything written.
    """

    def __init__(
        self, target: Target, schema: Schema, *, shard_bytes: int | None, alone: SealedAlone | None = None
    ) -> None:
        check_names(schema)
        self.schema = schema
        self._target = target
        self._shard_bytes = shard_bytes
        self._alone = alone
        required, optional = expected_arrays(schema, 0)
        self._arrays = {
            name: Spool(dtype, tuple(n or 0 for n in shape[1:]), beside=target.path)
            for name, (dtype, shape) in {**required, **optional}.items()
        }
        self._required = frozenset(required)
        self._units = unit_bytes(schema)
        self._starts: list[str] = []  # arrays that come first in a file, in the order of the format's writer
        self._keys = KeyLedger(beside=target.path)
        self._shards: list[_Shard] = []
        self._open = True
        self._failure: BaseException | None = None
        target.prepare()
        self._add_shard()

    def append(self, batch: SampleBatch) -> None:
        """Add samples in order. Raises SchemaError if the batch does not fit the schema."""
        self._require_open()
        checked = check_batch(self.schema, batch, path=self._target.path)
        if not checked.keys:
            return
        try:
            with writing(self._target.path):
                twice = self._keys.add(checked.joined_keys)
        except BaseException as exc:
            self._leave(exc)
            raise
        if twice is not None:
            error = DuplicateKeyError(f"key {checked.keys[twice]!r} comes twice; keys must be unique")
            error.position = twice
            raise error
        try:
            with writing(self._target.path):
                for start, stop in self._cut(checked):
                    self._write(checked, start, stop)
                self._shards[-1].file.flush()  # from here on, the views belong to the caller
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
            encoded = _encode_metadata(metadata)
            with writing(self._target.path):
                self._end_shard()
                stops = [shard.first for shard in self._shards[1:]] + [self._rows()]
                endings = [
                    self._finish(shard, stop, encoded if i == 0 else b"{}")
                    for i, (shard, stop) in enumerate(zip(self._shards, stops, strict=True))
                ]
                self._seal(endings)
            self._publish()
            self._open = False
            self._release()
        except BaseException as exc:
            self._leave(exc)
            raise

    def _publish(self) -> None:
        files = [shard.file for shard in self._shards]
        self._target.check_free()
        if not self._target.is_set:
            publish_file(files[0], replace=self._target.overwrite)
            return
        publish_set(
            files,
            check=self._target.check_free,
            leftovers=lambda: self._target.leftovers(len(files)),
            replace=self._target.overwrite,
        )

    def abort(self) -> None:
        """
        Remove everything written so far; does nothing after close. Raises StoreError that names what could not be
        removed.
        """
        if not self._open:
            return
        self._open = False
        problems: list[StoreError] = []
        with undisturbed():
            for shard in self._shards:
                try:
                    shard.file.discard()
                except StoreError as exc:
                    problems.append(exc)
            self._release()
        if problems:
            raise problems[0]

    def _leave(self, error: BaseException) -> None:
        """End the writer because of an error, which gets a note of what now holds and its message does not say."""
        is_told = self._open and isinstance(error, StoreError)  # by ``publish``
        try:
            self.abort()
        except StoreError as exc:
            error.add_note(str(exc))
        if self._is_published and not is_told:
            error.add_note(f"{self._target.path}: {COMPLETE}")
        self._failure = error

    @property
    def _is_published(self) -> bool:
        return bool(self._shards) and self._shards[0].file.is_published

    def _release(self) -> None:
        for shard in self._shards:
            shard.file.discard()
        # Temporary files without a name, whose content is in the store or no longer needed.
        with contextlib.suppress(OSError):
            self._keys.close()
        for spool in self._arrays.values():
            with contextlib.suppress(OSError):
                spool.close()

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
            raise StoreError(f"{self._target.path}: the writer is closed or aborted: create another store")

    def _cut(self, batch: CheckedBatch) -> Iterator[tuple[int, int]]:
        """Split a batch where a shard is full, and start the next shard there; a sample is never split."""
        count, sample_bytes = len(batch.keys), self._target.format.sample_bytes
        if self._shard_bytes is None or sample_bytes is None:
            yield 0, count
            return
        sizes = {f.name: batch.arrays[f"{f.name}_sizes"] for f in self.schema.payload}
        start = 0
        for i, cost in enumerate(sample_bytes(self.schema, sizes, count).tolist()):
            filled = self._shards[-1].size_bytes
            if filled and filled + cost > self._shard_bytes:
                yield start, i
                start = i
                self._end_shard()
                self._shards[-1].file.rest()
                self._add_shard()
            self._shards[-1].size_bytes += cost
        yield start, count

    def _write(self, batch: CheckedBatch, start: int, stop: int) -> None:
        shard = self._shards[-1]
        columns = {f.name: batch.arrays[f.name][start:stop] for f in self.schema.columns}
        values = {name: spans.part(start, stop) for name, spans in batch.values.items()}
        shard.writer.append(batch.keys[start:stop], values, columns)
        shard.keys.count += stop - start
        shard.keys.stop += int(batch.key_sizes[start:stop].sum()) + stop - start
        shard.keys.longest = max(shard.keys.longest, int(batch.key_sizes[start:stop].max(initial=0)))
        for name, array in batch.arrays.items():
            unit = self._units.get(name.removesuffix("_sizes"), 1) if name.endswith("_sizes") else 1
            self._arrays[name].append(array[start:stop] // unit if unit > 1 else array[start:stop])
        for name, spans in values.items():
            if spans.intervals is not None:
                for view in spans.intervals.views():
                    self._arrays[f"{name}_intervals"].append(view.view("<u4"))
        self._take_starts(shard)

    def _take_starts(self, shard: _Shard) -> None:
        taken = shard.writer.take_starts()
        self._starts = [f"{name}_starts" for name in taken]
        for name, starts in taken.items():
            self._arrays[f"{name}_starts"].append(starts // self._units[name] if self._units[name] > 1 else starts)

    def _add_shard(self) -> None:
        first = self._shards[0].file if self._shards else None
        file = PartialFile(self._target.shard(len(self._shards)), first=first)
        try:
            writer = self._target.format.writer(file, self.schema)
        except BaseException:
            file.discard()
            raise
        keys = self._shards[-1].keys.stop if self._shards else 0
        self._shards.append(_Shard(file, writer, self._rows(), KeyRange(keys, keys)))

    def _end_shard(self) -> None:
        self._shards[-1].writer.end_payload()
        self._take_starts(self._shards[-1])

    def _rows(self) -> dict[str, int]:
        return {name: len(spool) for name, spool in self._arrays.items()}

    def _finish(self, shard: _Shard, stop: Mapping[str, int], metadata: bytes) -> Ending:
        arrays: dict[str, NDArray[Any]] = {}
        for name in [*self._starts, *(other for other in self._arrays if other not in self._starts)]:
            array = self._arrays[name].rows(shard.first[name], stop[name])
            if name in self._required or name.endswith("_checksums") or array.any():  # zeros: unknown, not worth bytes
                arrays[name] = array
        arrays["keys"] = self._keys.array(shard.keys, fixed=self._target.format.fixed_keys)
        arrays["metadata"] = np.frombuffer(metadata, np.uint8)

        def header(places: Mapping[str, Place]) -> bytes:
            return IndexHeader(schema=self.schema, base=shard.writer.base, places=places).to_bytes()

        ending = shard.writer.finish(arrays, header)
        shard.file.rest()
        return ending

    def _seal(self, endings: list[Ending]) -> None:
        counts, alone = [shard.keys.count for shard in self._shards], self._alone
        set_crc = set_checksum((n, e.file_size, e.file_crc) for n, e in zip(counts, endings, strict=True))
        for i, (shard, ending) in enumerate(zip(self._shards, endings, strict=True)):
            seal = Seal(
                format=self._target.format.name,
                count=counts[i],
                file_size=ending.file_size,
                seal_start=ending.seal_start,
                head_size=ending.head_size,
                header_start=ending.header_start,
                header_size=ending.header_size,
                set_count=sum(counts),
                shard=i if alone is None else alone.number,
                shards=len(self._shards) if alone is None else 0,
                header_crc=ending.header_crc,
                head_crc=ending.head_crc,
                file_crc=ending.file_crc,
                set_crc=set_crc if alone is None else 0,
                plan=0 if alone is None else alone.plan,
            )
            shard.file.overwrite(ending.seal_start, seal.pack())
            shard.file.rest()


def _encode_metadata(metadata: Mapping[str, Any] | None) -> bytes:
    try:
        return json.dumps(dict(metadata or {}), separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as exc:
        raise SchemaError(f"metadata cannot be kept as JSON ({exc})") from exc
