"""Writer: packs samples from Python, one at a time, into a store that appears when it is complete."""

from __future__ import annotations

import atexit
import copy
import json
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

import numpy as np
from PIL import Image

from fastio.converters.fields.arrays import UnfitError, is_tensor
from fastio.converters.fields.pictures import file_or_bytes, own_file
from fastio.converters.packing.pipeline import check_jobs
from fastio.converters.pictures.counts import lossy_mask_lines
from fastio.converters.sources.options import source_record
from fastio.converters.text.encode import TextTokens
from fastio.converters.write.datasets import DatasetSamples, Unreadable, renamed_samples
from fastio.converters.write.encoder import (
    PIECE_BYTES,
    PIECE_SAMPLES,
    KeyRule,
    Misfit,
    Piece,
    SampleEncoder,
    SampleForm,
    check_key,
)
from fastio.converters.write.fields import Fields, FieldsAsked
from fastio.converters.write.pieces import Ledger, PartWork, PieceWriter, Refused, encoded_parts
from fastio.errors import SampleError, SchemaError, StoreError
from fastio.store import SampleWriter, check_target, create_store, open_store
from fastio.store.files.local import path_text
from fastio.store.kinds.scan import Problem
from fastio.types.options import explains_names
from fastio.types.schema import Schema

__all__ = [
    "WriteReport",
    "Writer",
    "checked_metadata",
    "classes_of",
]


_FIRST_SAMPLES, _FIRST_BYTES = 64, 4 << 20  # held back until the schema is inferred from them
_MEASURED = 16  # samples packed in this process, before workers get parts of a size that follows from theirs


def default_key(number: int) -> str:
    """
    Return the key of a sample that has none: its number, with eight digits.

    >>> default_key(12)
    '00000012'
    """
    return f"{number:08d}"


class Writer:
    """
    Packs samples from Python into a new store, whose suffix names the format.

    >>> from pathlib import Path
    >>> with Writer("out.lmdb", {"image": "image", "caption": "text", "scores": ("float32", (3,))}) as out:
    ...     out.write({"image": Path("cat.jpg"), "caption": "a cat", "scores": [0.5, 0, 0.5]}, key="cat")

    ``fields`` gives the type of each field, in the words of fastio/guide/fields.md, or None for one whose type the
    first 64 samples tell; without ``fields``, they tell all. ``schema`` is what came of that. ``path``, ``overwrite``
    and ``shard_bytes`` are those of ``fastio.store.create_store``; shards are ``"out-%06d.tar"``.

    A sample that does not fit raises SampleError from its own ``write``, with its key and field, and is left out; the
    writer goes on. So do bytes that are no picture, and pictures whose data end too early: header and end of each are
    looked at once. Four things show later, and the error, whose ``key`` names the sample, then comes from a later
    ``write``, from ``flush`` or from ``close``, after all good samples are kept: a key that an earlier piece has
    already, a text that the ``tokenizer`` refuses, a JPEG whose codes are damaged, and whatever does not fit among the
    first 64 samples while types are inferred. With ``on_error="skip"``, wrong samples are listed instead, in
    ``metadata["skipped"]``.

    All codes of baseline JPEGs of 8 KiB and more are read once: that finds damage, and the index keeps where their MCUs
    begin, so that crops decode faster. ``jump=False`` leaves both out. In other pictures, damage between header and end
    is not looked for (``fastio verify --decode`` finds it).

    The store gets its name at the end of the block, when it is complete, even if ``close`` then raises SampleError for
    a sample that it had to leave out; an exception inside the block leaves nothing.
    Memory holds one piece: 4 MiB or 512 samples, or one larger sample. ``metadata`` is JSON for the store, such as
    ``{"classes": ["cat", "dog"]}``, the names for the field "label", which may then be given by name; "field_classes"
    has those of others. ``tokenizer`` makes ids of text in fields of the type "tokens". ``progress(samples, bytes)``
    is called for every piece.

    Threads may share a writer. Processes may not: return samples from workers and write them in one, as ``fastio.pack``
    does. Raises StoreError if nothing can be written under the name, and SchemaError for impossible fields.
    """

    _threads: int | None = None  # that look into JPEGs; None: the CPUs that this process may use

    @explains_names()
    def __init__(  # noqa: PLR0913 - an option of the class each
        self,
        path: str | os.PathLike[str],
        fields: FieldsAsked = None,
        *,
        overwrite: bool = False,
        shard_bytes: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        tokenizer: TextTokens | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        progress: Callable[[int, int], object] | None = None,
        jump: bool = True,
    ) -> None:
        self._state = "closed"  # for __del__, until all is checked
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
        self.path = path_text(path, "the name of one store to write, such as 'out.lmdb' or 'out-%06d.tar'")
        self._metadata = checked_metadata(metadata)
        self._source: dict[str, Any] = source_record("python", os.path.basename(self.path))  # noqa: PTH119
        self._options = (tokenizer, progress, jump)
        self._ledger = Ledger(self.path, on_error)
        self._overwrite, self._shard_bytes = overwrite, shard_bytes
        self._fields = Fields.of(fields)
        self._pid, self._lock = os.getpid(), threading.RLock()
        self._first: list[tuple[str, dict[str, Any]]] = []
        self._first_bytes = 0
        self._count = 0
        self._begun = self._seconds = 0.0
        self._keys: set[str] = set()  # of the samples that are not written yet
        self._pieces: PieceWriter | None = None
        self._report: WriteReport | None = None
        self._check_target()
        schema = self._fields.schema
        if schema is not None:
            self._begin(schema)
        self._state = "open"
        _unclosed.add(self)

    @property
    def schema(self) -> Schema | None:
        """The fields with their types; None while they are being inferred."""
        return None if self._pieces is None else self._pieces.schema

    @property
    def samples_per_s(self) -> float:
        """Samples taken a second since the first."""
        seconds = self._seconds or time.perf_counter() - self._begun
        return self._count / seconds if self._count else 0.0

    @property
    def report(self) -> WriteReport:
        """What was written. Raises StoreError before ``close``."""
        if self._report is None:
            raise StoreError(f"{self.path}: is not complete: leave the `with` block, or call close()")
        return self._report

    def write(self, sample: Mapping[str, Any], *, key: str | None = None) -> None:
        """
        Add one sample: a value for each field, by name.

        Without ``key`` it is called by its number, with eight digits. Raises SampleError, see above, and StoreError if
        the disk is full; the store is then given up.
        """
        with self._lock:
            self._require_open()
            if not self._count:
                self._begun = time.perf_counter()
            key = default_key(self._count) if key is None else key
            self._count += 1
            try:
                check_key(key)
                if key in self._keys:
                    raise Misfit("has the key of an earlier sample; keys must be unique")
                if not isinstance(sample, Mapping):
                    raise Misfit(f"is of type {type(sample).__name__}; expected a dict of its fields")
                if self._pieces is None:
                    self._hold(key, sample)
                    return
                self._encoder.add(key, sample)
            except Misfit as exc:
                self._ledger.refuse([(str(key), exc)])
                return
            self._keys.add(key)
            if self._encoder.piece.is_full:
                self._flush()

    def write_all(
        self, dataset: Any, *, key: KeyRule = None, jobs: int | None = None, rename: Mapping[str, str] | None = None
    ) -> None:
        """
        Add all samples of a dataset, see ``fastio.pack``; more may follow, and may have been before.

        Raises what ``write`` raises, what the dataset raises (such samples are skipped with ``on_error="skip"``),
        SourceError for what is no dataset, and ValueError for ``jobs`` without a dataset whose length is known.
        """
        with self._lock:
            self._require_open()
            samples = DatasetSamples.of(dataset)
            if rename:
                samples = renamed_samples(samples, rename)
            check_jobs(jobs)
            if jobs is not None and samples.count is None:
                raise ValueError(f"jobs={jobs}: expected a dataset with a length and numbered samples")
            self._describe(samples, type(dataset).__name__)
            names = self._fields.names
            if samples.choose is not None and names is not None:
                samples = samples.choose([*names, key] if isinstance(key, str) else names)
            base, begin = self._count, 0
            form: SampleForm | None = None
            rows = samples.iterate() if samples.count is None else samples.read(range(samples.count))
            for begin, sample in enumerate(rows):
                if jobs is not None and form is not None and self._pieces is not None and begin >= _MEASURED:
                    self._write_parts(samples, form, base, begin, jobs)
                    return
                if form is None and not isinstance(sample, Unreadable):
                    form = SampleForm.of(sample, self._fields.names, key)
                    if samples.fields is None and self._fields.named is None and form.names is not None:
                        self._fields = Fields.of(form.names)
                self._write_one(samples, form, base, begin, sample)

    def flush(self) -> None:
        """
        Write the samples so far to the unfinished store, and settle the schema by them if it is not known yet.

        Raises SampleError for samples that only now prove wrong, after the others are written; see above. Those that
        it does not name are in the store once it is closed.
        """
        with self._lock:
            self._require_open()
            self._flush(self._infer() if self._first else [])

    def close(self) -> None:
        """
        Write what is left and give the store its name. Does nothing the second time.

        Raises SampleError if only now a sample proves wrong: the store is then complete without it. Raises StoreError
        if no sample was written, or it cannot be: nothing is then left.
        """
        with self._lock:
            if self._state == "closed":
                return
            self._require_open()
            try:
                refused = self._last_refused()
                self._finish()
            except BaseException:
                self.abort()
                raise
            if refused is not None:
                refused.add_note(f"{self.path} is complete, with all other samples")
                raise refused

    def abort(self) -> None:
        """Give up the store and remove all of it; does nothing after ``close``."""
        with self._lock:
            if self._state == "open" and os.getpid() == self._pid:
                self._state = "aborted"
                self._first = []
                if self._pieces is not None:
                    self._pieces.store.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.abort()
        except StoreError as exc:  # what could not be removed
            error.add_note(str(exc))

    def __del__(self) -> None:
        self._drop()

    def _drop(self) -> None:
        if getattr(self, "_state", "") == "open" and os.getpid() == self._pid:
            self.abort()
            warnings.warn(f"{self.path}: a Writer was dropped without close(): nothing was kept", RuntimeWarning, 3)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.path}: a Writer belongs to one process and cannot be pickled: write in one process what workers "
            "return, as fastio.pack(dataset, path, jobs=N) does"
        )

    def _require_open(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.path}: this Writer belongs to process {self._pid}, not to a child of it: write in one process "
                "what workers return, as fastio.pack(dataset, path, jobs=N) does"
            )
        if self._state != "open":
            raise StoreError(f"{self.path}: the writer is {self._state}: make another")

    def _describe(self, samples: DatasetSamples, name: str) -> None:
        """Take from a dataset what it says of its samples, where the user has not said it."""
        if self._count:
            return
        self._source = source_record("python", name)
        if self._pieces is None and samples.fields is not None:
            asked = self._fields.named or dict.fromkeys(samples.fields)
            types = {name: field or samples.fields.get(name) for name, field in asked.items()}
            self._fields = Fields.of(types)
        names = self._fields.names
        for entry, value in samples.metadata.items():
            if entry == "classes" and (names is None or "label" in names):
                self._metadata.setdefault("classes", value)
            elif entry == "field_classes":
                known = {field: classes for field, classes in value.items() if names is None or field in names}
                self._metadata.setdefault("field_classes", known)
        schema = self._fields.schema
        if self._pieces is None and schema is not None:
            self._begin(schema)

    def _write_one(self, samples: DatasetSamples, form: SampleForm | None, base: int, index: int, sample: Any) -> None:
        key: Any = default_key(base + index) if samples.key_at is None else samples.key_at(index)
        try:
            if isinstance(sample, Unreadable):
                if self._ledger.on_error == "raise":
                    raise sample.error
                raise sample.misfit
            assert form is not None
            key = form.key_of(sample, key)
            mapping = form.mapping(sample)
        except Misfit as exc:
            self._count += 1
            self._ledger.refuse([(str(key), exc)])
            return
        self.write(mapping, key=key)

    def _write_parts(self, samples: DatasetSamples, form: SampleForm, base: int, begin: int, jobs: int) -> None:
        """Write the samples from index ``begin`` on, which ``jobs`` processes read and encode."""
        self._flush()
        assert self._pieces is not None
        count = samples.count or 0
        average = self._pieces.size_bytes // max(1, self._pieces.packed) + 1
        step = max(1, min(PIECE_SAMPLES // 4, PIECE_BYTES // average))
        ranges = (range(i, min(i + step, count)) for i in range(begin, count, step))
        key_at = samples.key_at or (lambda index: default_key(base + index))
        parts = ((part, [key_at(index) for index in part]) for part in ranges)
        work = PartWork(samples, form, self._encoder, self._ledger.on_error == "skip")
        with closing(encoded_parts(work, parts, jobs)) as encoded:
            for part in encoded:
                self._count += part.count
                self._write_piece(part.piece, [(key, Misfit(text, field)) for key, text, field in part.refused])

    def _hold(self, key: str, sample: Mapping[str, Any]) -> None:
        """Keep one of the first samples, from which the schema is inferred."""
        held = {}
        for name, value in sample.items():
            try:
                held[name] = _kept(value)
            except UnfitError as exc:
                raise Misfit(exc.sentence(name), name) from exc
        self._first.append((key, held))
        self._first_bytes += sum(len(value) for value in held.values() if isinstance(value, (bytes, str)))
        self._keys.add(key)
        if len(self._first) >= _FIRST_SAMPLES or self._first_bytes >= _FIRST_BYTES:
            refused = self._infer()
            if self._encoder.piece.is_full:
                self._flush(refused)
            else:
                self._ledger.refuse(refused)

    def _infer(self) -> Refused:
        """Settle the schema and take the samples that were held back; returns those that do not fit."""
        held, self._first = self._first, []
        try:
            self._begin(self._fields.inferred([sample for _, sample in held]))
        except BaseException:
            self.abort()
            raise
        refused = list[tuple[str, Misfit]]()
        for key, sample in held:
            try:
                self._encoder.add(key, sample)
            except Misfit as exc:
                self._keys.discard(key)
                refused.append((key, exc))
        return refused

    def _begin(self, schema: Schema) -> None:
        tokenizer, progress, jump = self._options
        if tokenizer is not None and not any(each.traits.is_tokens for each in schema.fields):
            raise SchemaError(f"{self.path}: the tokenizer has no use, for no field is of the type 'tokens'")
        self._encoder = SampleEncoder(schema, tokenizer=tokenizer, classes=classes_of(self._metadata, schema))
        self._pieces = PieceWriter(
            schema, self._new_store(schema), self._ledger, tokenizer, progress, jump, jobs=self._threads
        )

    def _check_target(self) -> None:
        """Raise StoreError if nothing can be written. This, ``_new_store`` and ``_finish`` say where samples go."""
        check_target(self.path, overwrite=self._overwrite, shard_bytes=self._shard_bytes)

    def _new_store(self, schema: Schema) -> SampleWriter:
        return create_store(self.path, schema, overwrite=self._overwrite, shard_bytes=self._shard_bytes)

    def _flush(self, refused: Refused = ()) -> None:
        """Write the piece. Raises SampleError for ``refused`` and what the piece shows, after the good samples."""
        if self._pieces is not None:
            self._keys.clear()
            self._write_piece(self._encoder.take(), refused)

    def _write_piece(self, piece: Piece, refused: Refused = ()) -> None:
        assert self._pieces is not None
        try:
            self._pieces.write(piece, refused)
        except SampleError:
            raise
        except BaseException:
            self.abort()
            raise

    def _last_refused(self) -> SampleError | None:
        """Write what is left; the error of samples that proved wrong, if there are others to keep."""
        try:
            self.flush()
        except SampleError as exc:
            if self._pieces is None or not self._pieces.packed:
                raise
            return exc
        return None

    def _finish(self) -> None:
        """Give the store its name, and report. Raises StoreError if it has no sample."""
        pieces, skipped = self._pieces, self._ledger.skipped
        if pieces is None or not pieces.packed:
            reason = "no sample was written"
            if skipped:
                reason = (
                    f"all {len(skipped):,} samples have problems; the first: {skipped[0].key!r} {skipped[0].problem}"
                )
            raise StoreError(f"{self.path}: nothing was kept, {reason}")
        tokenizer = self._options[0]
        metadata = {
            "classes": None,
            **self._metadata,
            **pieces.lossy_masks.metadata,
            "source": self._source,
            **({} if tokenizer is None else {"tokenizer": tokenizer.record}),
            "skipped": [{"key": each.key, "problem": each.problem} for each in skipped],
        }
        pieces.store.close(metadata)
        self._state = "closed"
        self._seconds = time.perf_counter() - self._begun
        with open_store(self.path) as store:
            self._report = WriteReport(
                path=self.path,
                format=store.format,
                schema=pieces.schema,
                packed=pieces.packed,
                skipped=tuple(skipped),
                payload_bytes=pieces.size_bytes,
                store_bytes=store.size_bytes,
                shards=len(store.shard_paths),
                made_pngs=pieces.made_pngs,
                notes=lossy_mask_lines(pieces.lossy_masks.metadata),
                seconds=self._seconds,
            )


_unclosed: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _drop_unclosed() -> None:
    """Give up the writers that a program left open: a ``__del__`` after this may find modules emptied."""
    for writer in list(_unclosed):
        writer._drop()


def _kept(value: Any) -> Any:
    """The value as it is now: the caller may change it, or remove its file, before it is encoded."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if is_tensor(value):
        return value.detach().clone()
    if isinstance(value, (bytearray, memoryview, os.PathLike)):
        return file_or_bytes(value)
    if isinstance(value, Image.Image):
        return own_file(value) or value.copy()
    return copy.deepcopy(value) if isinstance(value, (list, dict)) else value


# WriteReport: what a Writer wrote.


@dataclass(frozen=True, slots=True)
class WriteReport:
    """
    What a ``Writer`` did, in ``seconds`` from its first sample to the complete store.

    ``payload_bytes`` are the bytes of all encoded values. ``made_pngs`` pictures came as pixels and became PNGs.
    ``notes`` are sentences on values that are packed, but may not be what was meant.
    """

    path: str
    format: str
    schema: Schema
    packed: int
    skipped: Sequence[Problem]
    payload_bytes: int
    store_bytes: int
    shards: int
    made_pngs: int
    notes: Sequence[str]
    seconds: float

    @property
    def found(self) -> int:
        """Samples that were handed over: packed and skipped."""
        return self.packed + len(self.skipped)

    @property
    def samples_per_s(self) -> float:
        """Samples packed a second."""
        return self.packed / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        """Return one line: what is in the store, how large it is, how fast it was written, what to know."""
        fields = ", ".join(each.name for each in self.schema.fields)
        files = "1 file" if self.shards == 1 else f"{self.shards} files"
        size = f"{self.store_bytes:,} bytes in {files}, {self.samples_per_s:,.0f} samples/s"
        parts = [f"{self.path}: {self.packed:,} samples of {fields}; {size}"]
        if self.skipped:
            parts.append(f"{len(self.skipped):,} skipped, listed in the store")
        if self.made_pngs:
            parts.append(
                f"{self.made_pngs:,} pictures came as pixels and became PNGs, which keep every pixel; the bytes of "
                "their files would be smaller and faster"
            )
        parts += self.notes
        return "; ".join(parts)


# What a user gives a Writer as the metadata of its store: checked, and the names of classes in it.

_OWN = ("document_counts", "skipped", "source", "tokenizer")  # entries that the writer makes


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy. Raises SchemaError if it is not JSON, or has entries that the writer makes."""
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(metadata or {}), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise SchemaError(f"metadata cannot be kept as JSON ({exc})") from exc
    taken = [name for name in _OWN if name in copied]
    if taken:
        raise SchemaError(f"metadata: the entry {taken[0]!r} is made by the writer: rename it")
    return copied


def classes_of(metadata: Mapping[str, Any], schema: Schema) -> dict[str, list[str]]:
    """The names of classes by field. Raises SchemaError if they are not names, or of a field that is not there."""
    by_field = dict(metadata.get("field_classes") or {})
    if metadata.get("classes") is not None:
        by_field["label"] = metadata["classes"]
    for name, classes in by_field.items():
        if name not in schema:
            raise SchemaError(f"metadata: there are classes of {name!r}, but no such field: drop them, or add it")
        if not isinstance(classes, list) or not all(isinstance(each, str) for each in classes):
            raise SchemaError(f"metadata: the classes of {name!r} must be a list of names")
        if len(set(classes)) != len(classes):
            raise SchemaError(f"metadata: a class of {name!r} comes twice")
    return by_field
