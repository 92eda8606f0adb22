"""SealedWriter, the writer of all formats: checks batches and keys, cuts shards, and says what holds if it fails."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio._native import checksum
from fastio.errors import SampleError, SchemaError, StoreError
from fastio.store.formats.format import Ending, Format, SampleBytes
from fastio.store.index.arrays import IndexArray, Tables, has_tables, is_large
from fastio.store.index.numbered_keys import encoded_runs, runs_of
from fastio.store.index.seal import (
    KEY_RUNS,
    IndexHeader,
    Place,
    Seal,
    check_names,
    counts_name,
    expected_arrays,
    set_checksum,
    unit_bytes,
)
from fastio.store.index.sealed import hints_of
from fastio.store.protocol import SampleBatch
from fastio.store.write.atomic import COMPLETE, PartialFile, undisturbed, writing
from fastio.store.write.keys import KeyLedger, KeyRange, key_pieces
from fastio.store.write.spool import Rows, Spool, array_bytes, blocks_of, narrowed
from fastio.types.npy import npy_shape
from fastio.types.schema import Field, Schema
from fastio.types.spans import ListSpans, Spans, sums_of

__all__ = [
    "DuplicateKeyError",
    "FileWriter",
    "SealedAlone",
    "SealedWriter",
]


class DuplicateKeyError(SchemaError):
    """
    A key that the store has already. If ``append`` raises it, ``position`` is that of the sample in the batch, and the
    writer is unchanged.
    """

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
    everything written. Where keys do not rise, ``append`` compares them with the last million and more, and ``close``
    with all: what it finds removes everything.
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
                self._require_unique()
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

    def _require_unique(self) -> None:
        key = self._keys.repeated()
        if key is not None:
            first, second = self._keys.places_of(key)
            raise DuplicateKeyError(
                f"{self._path}: samples {first:,} and {second:,} have the same key, "
                f"{key.decode('utf-8', 'surrogateescape')!r}; keys must be unique"
            )

    def _next_file(self, first_key: int) -> FileWriter:
        file = self._output.next_file()
        return FileWriter(file, self._format, self.schema, self._keys, first_key=first_key)

    def _cut(self, batch: CheckedBatch) -> Iterator[tuple[int, int]]:
        """Split a batch where a shard is full, and start the next shard there; a sample is never split."""
        count, sample_bytes, limit = len(batch.keys), self._format.sample_bytes, self._output.shard_bytes
        if limit is None or sample_bytes is None:
            yield 0, count
            return
        start = 0
        for i, cost in enumerate(_sample_bytes(self.schema, batch, sample_bytes).tolist()):
            filled = self._file.size_bytes
            if filled and filled + cost > limit:
                yield start, i
                start = i
                self._output.end_file(self._file)
                self._file.release()
                self._file = self._next_file(self._file.keys.stop)
            self._file.size_bytes += cost
        yield start, count


def _sample_bytes(schema: Schema, batch: CheckedBatch, of_values: SampleBytes) -> NDArray[np.int64]:
    """Return the bytes that each sample takes in a shard; those of an element are what a sample of it alone takes."""
    single = Schema(tuple(f for f in schema.fields if not f.is_list), is_per_sample=schema.is_per_sample)
    sizes = {f.name: batch.arrays[f"{f.name}_sizes"] for f in single.payload}
    total = of_values(single, sizes, len(batch.keys))
    for field in schema.lists:
        flat = {field.name: batch.arrays[f"{field.name}_sizes"]}
        of_elements = of_values(Schema((field.element,), is_per_sample=True), flat, len(flat[field.name]))
        total = total + sums_of(batch.lists[field.name].firsts, of_elements)
    return total


def encode_metadata(metadata: Mapping[str, Any] | None) -> bytes:
    """Return metadata as JSON. Raises SchemaError for what cannot be kept so."""
    try:
        return json.dumps(dict(metadata or {}), separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as exc:
        raise SchemaError(f"metadata cannot be kept as JSON ({exc})") from exc


# FileWriter: one packed file in progress: its payload, its index in spools, and its seal.


@dataclass(frozen=True, slots=True)
class SealedAlone:
    """One shard of a set that is sealed before the others are known: its plan (0: none), and its number there."""

    plan: int
    number: int


class FileWriter:
    """
    Writes samples, then their index and the seal to ``file``, which belongs to the caller.

    Keys lie in ``ledger``, one after the other: those of this file begin at ``first_key``. The index is spooled beside
    the file until ``release``.
    """

    def __init__(self, file: PartialFile, form: Format, schema: Schema, ledger: KeyLedger, *, first_key: int) -> None:
        self.file = file
        self.keys = KeyRange(first_key, first_key)
        self.size_bytes = 0  # by Format.sample_bytes, for whoever cuts shards
        self._format = form
        self._schema = schema
        self._ledger = ledger
        self._writer = form.writer(file, schema)
        required, optional = expected_arrays(schema, 0)
        self._arrays = {
            name: Spool(each.dtype, tuple(n or 0 for n in each.shape[1:]), beside=file.path)
            for name, each in (required | optional).items()
        }
        self._required = frozenset(required)
        self._numbers = {name for name, each in (required | optional).items() if each.is_number}
        self._units = unit_bytes(schema)
        self._starts: list[str] = []  # arrays that come first in a file, in the order of the format's writer

    @property
    def count(self) -> int:
        """Samples so far."""
        return self.keys.count

    def append(self, batch: CheckedBatch, start: int, stop: int) -> None:
        """Add the samples ``start`` up to ``stop`` of a batch whose keys the ledger has."""
        columns = {f.name: batch.arrays[f.name][start:stop] for f in self._schema.columns}
        values = {name: spans.part(start, stop) for name, spans in batch.values.items()}
        lists = {name: each.part(start, stop) for name, each in batch.lists.items()}
        self._writer.append(batch.keys[start:stop], values, columns, lists)
        self.keys.count += stop - start
        self.keys.stop += int(batch.key_sizes[start:stop].sum()) + stop - start
        self.keys.longest = max(self.keys.longest, int(batch.key_sizes[start:stop].max(initial=0)))
        for name, array in batch.arrays.items():
            unit = self._units.get(name.removesuffix("_sizes"), 1) if name.endswith("_sizes") else 1
            part = batch.rows(name, start, stop)
            self._arrays[name].append(array[part] // unit if unit > 1 else array[part])
        for name, spans in (*values.items(), *((name, each.spans) for name, each in lists.items())):
            if spans.intervals is not None:
                for view in spans.intervals.views():
                    self._arrays[f"{name}_intervals"].append(view.view("<u4"))
        self._take_starts()

    def finish(self, metadata: bytes, alone: SealedAlone | None) -> Seal:
        """Write the index and the seal: of a store of one file, or of a shard that is sealed alone. Returns it."""
        self._writer.end_payload()
        self._take_starts()
        data_bytes = self.file.size
        arrays: dict[str, Rows] = {}
        for name in [*self._starts, *(other for other in self._arrays if other not in self._starts)]:
            array = self._arrays[name]
            is_known = name in self._required or name.endswith("_checksums")
            if is_known or any(block.any() for block in blocks_of(array)):  # zeros: unknown, not worth bytes
                arrays[name] = array
        arrays["keys"] = self._ledger.array(self.keys, fixed=self._format.fixed_keys)
        arrays["metadata"] = IndexArray(np.frombuffer(metadata, np.uint8))
        index_bytes = sum(array_bytes(arrays[name]) for name in arrays.keys() - hints_of(self._schema))
        if is_large(index_bytes):
            arrays |= {name: narrowed(arrays[name]) for name in self._numbers & arrays.keys()}
            joined = key_pieces(self._ledger.array(self.keys, fixed=False))
            runs = runs_of(joined) if self._format.numbered_keys(self._schema) else None
            if runs is not None:
                del arrays["keys"]
                arrays[KEY_RUNS] = IndexArray(encoded_runs(runs))
        if has_tables(index_bytes, data_bytes):
            tables = Tables()
            for name, rows in arrays.items():
                tables.add(name, blocks_of(rows))
            arrays |= {name: IndexArray(table) for name, table in tables.arrays().items()}

        def header(places: Mapping[str, Place]) -> bytes:
            return IndexHeader(schema=self._schema, base=self._writer.base, places=places).to_bytes()

        seal = self._seal(self._writer.finish(arrays, header), alone)
        self.file.overwrite(seal.seal_start, seal.pack())
        return seal

    def release(self) -> None:
        """Let the spools go: temporary files without a name, whose content is in the file or no longer needed."""
        for each in (self._writer.release, *(spool.close for spool in self._arrays.values())):
            with contextlib.suppress(OSError):
                each()

    def _take_starts(self) -> None:
        taken = self._writer.take_starts()
        self._starts = [f"{name}_starts" for name in taken]
        for name, starts in taken.items():
            self._arrays[f"{name}_starts"].append(starts // self._units[name] if self._units[name] > 1 else starts)

    def _seal(self, ending: Ending, alone: SealedAlone | None) -> Seal:
        count = self.keys.count
        return Seal(
            format=self._format.name,
            count=count,
            file_size=ending.file_size,
            seal_start=ending.seal_start,
            head_size=ending.head_size,
            header_start=ending.header_start,
            header_size=ending.header_size,
            set_count=count,
            shard=0 if alone is None else alone.number,
            shards=1 if alone is None else 0,
            header_crc=ending.header_crc,
            head_crc=ending.head_crc,
            file_crc=ending.file_crc,
            set_crc=set_checksum([(count, ending.file_size, ending.file_crc)]) if alone is None else 0,
            plan=0 if alone is None else alone.plan,
        )


# Checks a whole batch on its way into a writer, before its first byte is written.


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """
    A batch that fits: spans inside their buffers, and its part of the index arrays.

    ``flat`` names the field of lists of those arrays that have an entry per element.
    """

    keys: Sequence[str]
    joined_keys: bytes  # UTF-8, joined by NUL
    key_sizes: NDArray[np.int64]  # in bytes
    values: dict[str, Spans]
    arrays: dict[str, NDArray[Any]]  # sizes, checksums, shapes, columns, counts
    lists: dict[str, ListSpans]
    flat: dict[str, str]

    def rows(self, name: str, start: int, stop: int) -> slice:
        """Return which entries of an array belong to the samples ``start`` up to ``stop``."""
        if name not in self.flat:
            return slice(start, stop)
        firsts = self.lists[self.flat[name]].firsts
        return slice(int(firsts[start]), int(firsts[stop]))


def check_batch(schema: Schema, batch: SampleBatch, *, path: str) -> CheckedBatch:
    """
    Check a batch. Raises SchemaError if it does not fit the schema.

    Values with a checksum (from another store) are compared with it: SampleError if they differ. ``path`` is for
    messages.
    """
    count = len(batch.keys)
    joined, key_sizes = _check_keys(batch.keys)
    single = [f for f in schema.payload if not f.is_list]
    _same_names("payload", {f.name for f in single}, set(batch.spans))
    _same_names("lists", {f.name for f in schema.lists}, set(batch.lists))
    _same_names("columns", {f.name for f in schema.columns}, set(batch.columns))
    images = {f.name for f in schema.payload if f.traits.is_picture}
    if not set(batch.shapes) <= images:
        raise SchemaError(f"shapes given for {sorted(set(batch.shapes) - images)}, image fields are {sorted(images)}")
    arrays: dict[str, NDArray[Any]] = {}
    for field in single:
        arrays |= _checked_values(field, batch.spans[field.name], batch.keys, batch.shapes.get(field.name), path=path)
    lists: dict[str, ListSpans] = {}
    flat: dict[str, str] = {}
    for field in schema.lists:
        each = batch.lists[field.name]
        _check_counts(field, each, count)
        keys = [batch.keys[row] for row in each.owners.tolist()]
        checked = _checked_values(field, each.spans, keys, each.shapes, path=path, rows=each.owners)
        lists[field.name] = replace(each, spans=replace(each.spans, checksums=checked[f"{field.name}_checksums"]))
        flat |= dict.fromkeys(checked, field.name)
        arrays |= {counts_name(field.name): each.counts.astype("<u4"), **checked}
    for field in schema.columns:
        shape = (count, *field.shape)
        arrays[field.name] = _exact(field.name, batch.columns[field.name], dtype=field.dtype, shape=shape)
    values = {
        field.name: replace(batch.spans[field.name], checksums=arrays[f"{field.name}_checksums"]) for field in single
    }
    return CheckedBatch(batch.keys, joined, key_sizes, values, arrays, lists, flat)


def _checked_values(
    field: Field,
    spans: Spans,
    keys: Sequence[str],
    shapes: NDArray[np.int32] | None,
    *,
    path: str,
    rows: NDArray[np.int64] | None = None,
) -> dict[str, NDArray[Any]]:
    """
    Return the index arrays of a field's values, or of the elements of its lists.

    ``keys`` are those of their samples, ``rows`` the positions of these in the batch, if they are not those of values.
    """
    _check_sizes(field, spans, keys)
    arrays: dict[str, NDArray[Any]] = {
        f"{field.name}_sizes": np.array(spans.sizes, np.int64),
        f"{field.name}_checksums": _checksums(field, spans, keys, path=path, rows=rows),
    }
    if field.element.traits.is_picture:
        shapes = np.zeros((len(keys), 3), np.int32) if shapes is None else shapes
        arrays[f"{field.name}_interval_counts"] = _interval_counts(field, spans)
        arrays[f"{field.name}_shapes"] = _exact(f"{field.name} (shapes)", shapes, dtype="<i4", shape=(len(keys), 3))
    if field.element.traits.is_npy:
        arrays[f"{field.name}_shapes"] = _array_shapes(field, spans, keys)
    return arrays


def _array_shapes(field: Field, spans: Spans, keys: Sequence[str]) -> NDArray[np.int32]:
    """Return the shapes that arrays tell. Raises SchemaError for a value that is no such array."""
    shapes = np.empty((len(keys), len(field.shape)), "<i4")
    for row, (key, view) in enumerate(zip(keys, spans.views(), strict=True)):
        try:
            shapes[row] = npy_shape(field.element, view.data)
        except (ValueError, OverflowError) as exc:
            raise SchemaError(f"field {field.name!r} of {key!r}: is {exc}") from exc
    return shapes


def _check_counts(field: Field, lists: ListSpans, count: int) -> None:
    """Check that there is one list per sample, and as many values as they have elements."""
    counts = lists.counts
    most = 1 if field.is_optional else np.iinfo(np.uint32).max
    if (
        counts.shape != (count,)
        or counts.dtype != np.int64
        or (count and not 0 <= counts.min() <= counts.max() <= most)
    ):
        raise SchemaError(
            f"field {field.name!r}: expected {count} counts of 0 to {most} elements, int64, one per key, got "
            f"{counts.dtype} {counts.shape}, {counts[:4].tolist()}"
        )
    if int(counts.sum()) != len(lists.spans):
        raise SchemaError(f"field {field.name!r}: expected {int(counts.sum())} elements, got {len(lists.spans)}")


def _check_keys(keys: Sequence[str]) -> tuple[bytes, NDArray[np.int64]]:
    """Return the keys in UTF-8, joined by NUL, and their sizes; keys must not be empty or contain NUL."""
    if not keys:
        return b"", np.empty(0, np.int64)
    try:
        # Names of files that are not UTF-8 arrive with surrogates (os.fsdecode) and are stored as they came.
        joined = "\0".join(keys).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        bad = next(key for key in keys if not _is_encodable(key))
        raise SchemaError(f"key {bad!r} cannot be written as UTF-8: rename it") from exc
    ends = np.append(np.flatnonzero(np.frombuffer(joined, np.uint8) == 0), len(joined))
    sizes = np.diff(ends, prepend=-1) - 1
    if len(sizes) != len(keys) or not sizes.all():
        bad = next(key for key in keys if not key or "\0" in key)
        raise SchemaError(f"key {bad!r}: expected at least one character and no NUL")
    return joined, sizes


def _is_encodable(key: str) -> bool:
    try:
        key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _same_names(what: str, expected: set[str], got: set[str]) -> None:
    if expected != got:
        raise SchemaError(f"{what}: expected fields {sorted(expected)}, got {sorted(got)}")


def _check_sizes(field: Field, spans: Spans, keys: Sequence[str]) -> None:
    if not len(keys) == len(spans) == len(spans.sizes) == len(spans.shard):
        raise SchemaError(f"field {field.name!r}: expected {len(keys)} values, one per key, got {len(spans)}")
    field = field.element
    fits = field.fits(spans.sizes)
    if not fits.all():
        bad = int(fits.argmin())
        expected = f"whole {'rows' if field.traits.is_ragged else 'ids'} of {field.unit_bytes} bytes"
        if field.has_known_size:
            expected = f"{field.nbytes} bytes ({field.dtype} {field.shape})"
        raise SchemaError(f"field {field.name!r} of {keys[bad]!r}: expected {expected}, got {spans.sizes[bad]} bytes")


def _checksums(
    field: Field, spans: Spans, keys: Sequence[str], *, path: str, rows: NDArray[np.int64] | None
) -> NDArray[np.uint32]:
    found = np.empty(len(keys), np.uint32)
    try:
        checksum(spans, found).wait()
    except IndexError as exc:
        raise SchemaError(f"field {field.name!r}: a span lies outside its buffer ({exc})") from exc
    if spans.checksums is not None and not np.array_equal(found, spans.checksums):
        value = int(np.flatnonzero(found != spans.checksums)[0])
        index = value if rows is None else int(rows[value])
        raise SampleError(
            f"{path}: sample {index} of the batch ({keys[value]!r}), field {field.name!r}: expected bytes with "
            f"CRC-32 {spans.checksums[value]:08x}, got {found[value]:08x}; the source is damaged: verify it",
            path=path,
            index=index,
            key=keys[value],
            field=field.name,
        )
    return found


def _interval_counts(field: Field, spans: Spans) -> NDArray[np.uint32]:
    """Return how many restart intervals come with each value."""
    if spans.intervals is None:
        return np.zeros(len(spans), np.uint32)
    sizes = spans.intervals.sizes
    if len(sizes) != len(spans) or (sizes % 4).any():
        raise SchemaError(f"field {field.name!r}: expected intervals of 4 bytes for {len(spans)} values, got {sizes}")
    return (sizes // 4).astype(np.uint32)


def _exact(name: str, values: ArrayLike, *, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Return a copy of the values in this dtype. Raises SchemaError if a value would change or the shape differs."""
    array = np.asarray(values)
    if array.shape != shape:
        raise SchemaError(f"{name!r}: expected shape {shape}, got {array.shape}")
    if array.dtype == np.dtype(dtype):
        return np.array(array, order="C")
    if array.dtype.kind not in "biufSU":
        raise SchemaError(f"{name!r}: expected dtype {dtype}, got {array.dtype}")
    try:
        with np.errstate(all="ignore"):
            cast = array.astype(dtype, order="C")
            changed = (cast != array) & (array == array)  # noqa: PLR0124 - NaN stays NaN
    except (ValueError, TypeError) as exc:  # text that is no number, or not ASCII
        raise SchemaError(f"{name!r}: expected values that fit {dtype}, got {array.dtype} ({exc})") from exc
    if np.any(changed):
        raise SchemaError(f"{name!r}: expected values that fit {dtype}, got {array[changed].ravel()[0]!r}")
    return cast
