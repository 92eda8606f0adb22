"""Reads a packed store as a source of its samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.copied import parse_json
from fastio.converters.fields.types import FieldChoice, missing_part, value_at
from fastio.converters.fields.values import encode_values, read_documents
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns
from fastio.converters.sources.listed import Indices, ListedSource, Read, Values, read_stored
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.record import origin_of
from fastio.converters.sources.source import joined_checksums
from fastio.errors import SourceError, StoreError, StoreIncomplete
from fastio.store.beside.joined import BesideStore, open_with_fields, stores_of
from fastio.store.formats import named, names_store, suffixes
from fastio.store.index.store import SealedStore, list_checksums
from fastio.store.kinds.scan import Problem, SourcePath, shown
from fastio.store.kinds.unknown import container_of_others, is_container_of_others, kind_of
from fastio.store.protocol import SampleStore, read_values, value_spans
from fastio.types.field_types import type_of
from fastio.types.npy import npy_array
from fastio.types.schema import Field, Schema
from fastio.types.spans import ListSpans, Spans

__all__ = [
    "checksums_of",
    "open_stored",
    "sizes_of",
]


_KIND = "store"  # of sources
_OF_FILES = ("table", "coco", "files")  # how fields become the files again that they were: not if these are chosen
PackedStore = SealedStore | BesideStore

# Metadata that the packer writes anew; everything else is copied.
_WRITTEN_ANEW = ("beside", "source", "skipped", "packing", "misnamed", "lossy_masks", "jpegs", "extensions")


def open_stored(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a store as a source of its samples, in their order, with the fields that were added to it.

    In shards written by other tools, problems are: members that belong to no sample, samples whose key occurs in an
    earlier shard, text that is not UTF-8, and JSON that does not parse. If fields are asked for, these and the picture
    and label are packed, see ``chosen_fields``.
    """
    path = place.path
    if not names_store(path):
        found = "a folder without shards" if place.is_folder else kind_of(path)
        raise SourceError(f"{path}: expected a packed store ({suffixes()}, or a folder of shards), found {found}")
    if is_container_of_others(path):  # which opens where it lies, too, by its own kind of source
        raise SourceError(f"{path}: expected a packed store, found {container_of_others(path)}")
    try:
        store = open_with_fields(path)
    except StoreIncomplete as exc:
        form, others = named(path), container_of_others(path)
        if form is None or form.foreign is not None or not others:  # files of others open: this one is ours, and cut
            raise
        raise SourceError(f"{path}: expected a packed store, found {others}") from exc
    first, *_ = stores_of(store)  # of which alone others may have packed the shards
    is_sealed = all(shard.is_sealed for shard in first.shards)
    problems: dict[int, Problem] = {} if is_sealed else _repeated(first)
    not_samples = () if is_sealed else store.metadata["skipped"]
    extensions = {} if is_sealed else store.metadata["extensions"]
    without = options.columns.ignore_columns
    fields = None
    if options.fields or without:
        fields = chosen_fields(path, store.schema, extensions, options.fields, without)
    unpacked = _left_out(store, fields, options)
    return ListedSource(
        path=path,
        kind=_KIND,
        schema=store.schema if fields is None else Schema(tuple(each.field for each in fields)),
        metadata=_metadata(place.name, store, fields, unpacked, is_sealed=is_sealed),
        keys_at=store.keys,
        sizes=sizes_of(store, _payload(store, None)),
        read=_read(store, fields, is_sealed=is_sealed),
        disk_bytes=sum(Path(each).stat().st_blocks * 512 for each in store.shard_paths),
        files_opened=len(store.shard_paths),
        paths=lambda: store.shard_paths,
        columns={} if fields is not None else _columns(store),
        problems=[*problems.values(), *(Problem(shown(each["key"]), each["problem"]) for each in not_samples)],
        order=np.setdiff1d(np.arange(len(store)), np.fromiter(problems, np.int64, len(problems))),
        is_by_name=False,
        is_stored=is_sealed and fields is None,
        checksums_at=checksums_of(store, _payload(store, fields)) if is_sealed else None,
    )


def _left_out(store: PackedStore, fields: Sequence[StoredField] | None, options: SourceOptions) -> list[str]:
    """The fields that are not packed. Raises SourceError for those of them that hold pictures."""
    names = [field.name for field in store.schema.fields]
    if fields is None:  # all are copied as they are
        return []

    def first_values(name: str) -> list[Any]:
        if store.schema[name].is_column:
            return []
        with suppress(StoreError):  # damaged: whoever packs the field says so
            values: SampleStore = store.elements(name) if store.schema[name].is_list else store
            spans = read_values(values, name, np.arange(min(FIRST_VALUES, len(values))))
            return [view.tobytes() for view in spans.views()]
        return []

    used = {each.source.name for each in fields}
    columns = SourceColumns(store.path, names, first_values, options.columns.ignore_columns, noun="field")
    return columns.left_out(used, {*names} if options.as_recorded else used)


def _columns(store: PackedStore) -> dict[str, NDArray[Any]]:
    return {field.name: store.column(field.name) for field in store.schema.columns}


def _payload(store: PackedStore, fields: Sequence[StoredField] | None) -> list[str]:
    """The names of all payload fields, or of those that the fields asked for are made of."""
    used = store.schema.fields if fields is None else [each.source for each in fields]
    return list(dict.fromkeys(field.name for field in used if not field.is_column))


def _read(store: PackedStore, fields: Sequence[StoredField] | None, *, is_sealed: bool) -> Read:
    """How to read all payload fields, or those that the fields asked for are made of; others' documents are checked."""
    if fields is None:
        read = read_stored(store, _payload(store, fields))
        return read if is_sealed else read_documents(read, store.schema.payload)
    read = read_chosen(fields, read_stored(store, _payload(store, fields)), _columns(store))
    return read if is_sealed else read_documents(read, [each.field for each in fields])


def sizes_of(store: PackedStore, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the bytes of each sample ``(n,)``, all of these payload fields together."""
    total = np.zeros(len(store), np.int64)
    for name in names:
        total += store.value_bytes(name)
    return total


def checksums_of(store: PackedStore, names: Iterable[str]) -> Callable[[Indices], NDArray[np.uint32] | None]:
    """Return ``ListedSource.checksums_at`` of these payload fields: their checksums by the index of the store."""
    names = list(names)

    def checksums_at(indices: Indices) -> NDArray[np.uint32] | None:
        return joined_checksums([_checksums_of(store, name, indices) for name in names])

    return checksums_at


def _checksums_of(store: PackedStore, name: str, indices: Indices) -> NDArray[np.uint32] | None:
    """The checksums of the values of a field, or of its lists."""
    spans, counts = value_spans(store, name, indices)
    return spans.checksums if counts is None or spans.checksums is None else list_checksums(spans.checksums, counts)


def _metadata(
    name: str, store: PackedStore, fields: Sequence[StoredField] | None, unpacked: Sequence[str], *, is_sealed: bool
) -> dict[str, Any]:
    """
    Return the metadata that the new store keeps.

    The list of skipped samples and the packing become history: ``skipped_before``, ``packing_before``. The record of
    the first source is kept as ``origin``, or as ``text_source`` for text.
    """
    known = store.metadata
    said: Mapping[str, Any] = known.get("source") or {}
    record = source_record(_KIND, name, labels=None, format=store.format, left_out=unpacked)
    if fields is not None:
        record["fields"] = [str(FieldChoice(each.field.name, each.where, each.field)) for each in fields]
    if "label_titles" in said:
        record["label_titles"] = said["label_titles"]
    kept: dict[str, Any] = {"classes": None, **{name: known[name] for name in known if name not in _WRITTEN_ANEW}}
    if fields is not None:
        kept = {name: value for name, value in kept.items() if name not in _OF_FILES}
        if files := _files_of(known.get("files") or {}, fields):
            kept["files"] = files
    if is_sealed and known.get("skipped"):
        kept["skipped_before"] = [*known.get("skipped_before", ()), *known["skipped"]]
    if known.get("packing"):
        kept["packing_before"] = [*known.get("packing_before", ()), known["packing"]]
    origin = origin_of(known)
    if any(field.traits.is_sequence for field in store.schema.payload):
        kept["text_source"] = origin
    elif origin:
        kept["origin"] = origin
    return {**kept, "source": record}


def _files_of(files: Mapping[str, Any], fields: Sequence[StoredField]) -> dict[str, Any]:
    """What the names of files were, for the fields that are still those of files."""
    return {each.field.name: files[each.source.name] for each in fields if not each.path and each.source.name in files}


def _repeated(store: SealedStore) -> dict[int, Problem]:
    """Samples whose key an earlier shard has already, by index: within one shard the scan has found them."""
    repeated: dict[int, Problem] = {}
    first_in: dict[str, str] = {}
    start = 0
    for shard in store.shards if len(store.shards) > 1 else ():
        name = Path(shard.path).name
        for index, key in enumerate(store.keys(np.arange(start, start + shard.count)), start):
            first = first_in.setdefault(key, name)
            if first != name:
                repeated[index] = Problem(shown(key), f"comes again in {name}, after {first}")
        start += shard.count
    return repeated


# The fields of a store that ``--field`` asks for: under other names, of other types, or from inside its JSON.


@dataclass(frozen=True, slots=True)
class StoredField:
    """``field`` is made of the stored field ``source``, or of what ``path`` leads to in its JSON."""

    field: Field
    source: Field
    path: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """What ``--field`` calls it."""
        return ".".join((self.source.name, *self.path))

    @property
    def is_as_stored(self) -> bool:
        """Whether every stored value is one of the new field, byte for byte."""
        if self.path or self.field.is_column != self.source.is_column:
            return False
        if self.field.traits.is_picture and self.source.traits.is_picture:
            return True
        return replace(self.field, name=self.source.name, role=self.source.role) == self.source


def chosen_fields(
    path: str,
    schema: Schema,
    extensions: Mapping[str, Sequence[str]],
    choices: Sequence[FieldChoice],
    without: Collection[str] = (),
) -> list[StoredField]:
    """
    Return the fields asked for, and those that stay without being asked for: the picture and the label; all, if none
    are asked for. Fields in ``without`` do not stay.

    WHERE is the name of a stored field, or an extension of members in tar shards of other tools, and may go on into
    JSON: ``json.objects.bbox`` is the ``bbox`` of each object. Raises SourceError for what is not there.
    """
    chosen = [_chosen(path, schema, extensions, choice) for choice in choices]
    names = [each.field.name for each in chosen]
    if len(set(names)) < len(names):
        raise SourceError(f"{path}: --field: a field is asked for twice, got {', '.join(names)}")
    taken = {each.source.name for each in chosen if not each.path}
    kept = [
        StoredField(field, field)
        for field in schema.fields
        if (not choices or field.name in ("image", "label")) and field.name not in {*names, *taken, *without}
    ]
    every = sorted([*kept, *chosen], key=lambda each: (each.field.is_column, each.field.name != "image"))
    renamed = {each.source.name: each.field.name for each in every if not each.path}
    owners = {**renamed, **{each.field.name: each.field.name for each in every}}
    return [replace(each, field=_with_owner(each.field, owners)) for each in every]


def _with_owner(field: Field, owners: Mapping[str, str]) -> Field:
    """The field whose rows belong to another by the new name of that one; to none if that one is not asked for."""
    if not field.owner:
        return field
    return replace(field, role=f"per:{owners[field.owner]}" if field.owner in owners else "")


def _chosen(path: str, schema: Schema, extensions: Mapping[str, Sequence[str]], choice: FieldChoice) -> StoredField:
    by_extension = {end: name for name, ends in extensions.items() for end in ends}
    parts = choice.where.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        name = name if name in schema else by_extension.get(name, "")
        if name and name in schema:
            return _of(path, schema[name], tuple(parts[count:]), choice)
    names = ", ".join(field.name for field in schema.fields)
    raise SourceError(f"{path}: --field {choice}: there is no field {choice.where!r}; there is {names}")


def _of(path: str, source: Field, below: tuple[str, ...], choice: FieldChoice) -> StoredField:
    if below and not source.traits.is_json:
        raise SourceError(f"{path}: --field {choice}: {source.name!r} holds {source}, and only JSON has values in it")
    if below and choice.field is None:
        raise SourceError(f"{path}: --field {choice}: name the type of what is in the JSON, as in {choice}:xywh")
    asked = StoredField(choice.field or replace(source, name=choice.name), source, below)
    if (source.is_list or asked.field.is_list) and not asked.is_as_stored:
        raise SourceError(
            f"{path}: --field {choice}: {source.name!r} is {type_of(source)}, which stays so: give it another name "
            f"alone, --field {choice.name}={source.name}"
        )
    return asked


def read_chosen(fields: Sequence[StoredField], read: Read, columns: Mapping[str, NDArray[Any]]) -> Read:
    """Make a ``Read`` for these fields from that of the store's payload fields, and its columns."""

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        wait = read(indices, pool)
        return lambda: _converted(fields, wait(), {name: column[indices] for name, column in columns.items()})

    return begin


def _converted(fields: Sequence[StoredField], stored: Values, columns: Mapping[str, NDArray[Any]]) -> Values:
    spans: dict[str, Spans] = {}
    lists: dict[str, ListSpans] = {}
    made: dict[str, NDArray[Any]] = {}
    problems = dict(stored.problems)
    for each in fields:
        name = each.field.name
        if each.is_as_stored and each.source.is_column:
            made[name] = columns[each.source.name]
        elif each.source.is_list:
            lists[name] = stored.lists[each.source.name]
        elif each.is_as_stored:
            spans[name] = stored.spans[each.source.name]
        else:
            values, bad = _values(each, stored, columns)
            encoded = encode_values(each.field, values)
            problems = {**encoded.problems, **bad, **problems}
            if encoded.spans is not None:
                spans[name] = encoded.spans
            elif encoded.column is not None:
                made[name] = encoded.column
    return Values(spans, problems, made, lists=lists)


def _values(of: StoredField, stored: Values, columns: Mapping[str, NDArray[Any]]) -> tuple[list[Any], dict[int, str]]:
    """The stored values as Python has them, and what is wrong with some."""
    source = of.source
    if source.is_column:
        return columns[source.name].tolist(), {}
    values: list[Any] = []
    problems: dict[int, str] = {}
    for i, view in enumerate(stored.spans[source.name].views()):
        value: Any = view.tobytes()
        if source.traits.is_json and not of.field.traits.is_text:
            try:
                document = parse_json(value)
                value = value_at(document, of.path)
                missing = "" if of.field.traits.is_json else missing_part(source.name, document, of.path)
                if missing:
                    problems.setdefault(i, f"has nothing for the field {of.field.name!r}: {missing}")
            except ValueError as exc:
                problems.setdefault(i, f"has a field {source.name!r} that is not JSON: {exc}")
                value = None
            except KeyError as exc:
                problems.setdefault(i, f"has no {exc.args[0]!r} in {source.name!r}: there is {document!r:.60}")
                value = None
        elif source.traits.is_npy:
            value = npy_array(source, value)
        elif source.traits.is_plain and not source.traits.is_text:
            shape = [-1 if size is None else size for size in source.shape]
            value = np.frombuffer(value, source.dtype).reshape(shape)
        values.append(value)
    return values, problems
