"""Reads a packed store as a source of its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.documents import read_documents
from fastio.converters.fields_asked import FieldChoice
from fastio.converters.kind import SourceOptions, SourcePath, source_record
from fastio.converters.listed import Indices, ListedSource, Read, read_stored
from fastio.converters.origin import origin_of
from fastio.converters.other_containers import container_of_others
from fastio.converters.scan import shown
from fastio.converters.source import Problem, joined_checksums
from fastio.converters.source_columns import FIRST_VALUES, SourceColumns
from fastio.converters.stored_fields import StoredField, chosen_fields, read_chosen
from fastio.errors import SourceError, StoreError, StoreIncomplete
from fastio.store import open_store
from fastio.store.formats import named
from fastio.store.index import SealedStore
from fastio.store.values import read_values
from fastio.types.schema import Schema

__all__ = ["open_stored"]

_KIND = "store"  # of sources

# Metadata that the packer writes anew; everything else is copied.
_WRITTEN_ANEW = ("source", "skipped", "packing", "misnamed", "lossy_masks", "jpegs", "extensions")


def open_stored(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a store as a source of its samples, in their order.

    In shards written by other tools, problems are: members that belong to no sample, samples whose key occurs in an
    earlier shard, text that is not UTF-8, and JSON that does not parse. If fields are asked for, these and the picture
    and label are packed, see ``chosen_fields``.
    """
    path = place.path
    try:
        store = open_store(path)
    except StoreIncomplete as exc:
        form, others = named(path), container_of_others(path)
        if form is None or form.foreign is not None or not others:  # files of others open: this one is ours, and cut
            raise
        raise SourceError(f"{path}: expected a packed store, found {others}") from exc
    is_sealed = all(shard.is_sealed for shard in store.shards)
    problems: dict[int, Problem] = {} if is_sealed else _repeated(store)
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
        sizes=_sizes(store),
        read=_read(store, fields, is_sealed=is_sealed),
        disk_bytes=sum(Path(each).stat().st_blocks * 512 for each in store.shard_paths),
        files_opened=len(store.shard_paths),
        paths=lambda: store.shard_paths,
        columns={} if fields is not None else _columns(store),
        problems=[*problems.values(), *(Problem(shown(each["key"]), each["problem"]) for each in not_samples)],
        order=np.setdiff1d(np.arange(len(store)), np.fromiter(problems, np.int64, len(problems))),
        is_by_name=False,
        is_stored=is_sealed and fields is None,
        checksums_at=_checksums(store, fields) if is_sealed else None,
    )


def _left_out(store: SealedStore, fields: Sequence[StoredField] | None, options: SourceOptions) -> list[str]:
    """The fields that are not packed. Raises SourceError for those of them that hold pictures."""
    names = [field.name for field in store.schema.fields]
    if fields is None:  # all are copied as they are
        return []

    def first_values(name: str) -> list[Any]:
        if store.schema[name].is_column:
            return []
        with suppress(StoreError):  # damaged: whoever packs the field says so
            spans = read_values(store, name, np.arange(min(FIRST_VALUES, len(store))))
            return [view.tobytes() for view in spans.views()]
        return []

    used = {each.source.name for each in fields}
    columns = SourceColumns(store.path, names, first_values, options.columns.ignore_columns, noun="field")
    return columns.left_out(used, {*names} if options.as_recorded else used)


def _columns(store: SealedStore) -> dict[str, NDArray[Any]]:
    return {field.name: store.column(field.name) for field in store.schema.columns}


def _read(store: SealedStore, fields: Sequence[StoredField] | None, *, is_sealed: bool) -> Read:
    """How to read all payload fields, or those that the fields asked for are made of; others' documents are checked."""
    if fields is None:
        read = read_stored(store, [field.name for field in store.schema.payload])
        return read if is_sealed else read_documents(read, store.schema.payload)
    names = list(dict.fromkeys(each.source.name for each in fields if not each.source.is_column))
    read = read_chosen(fields, read_stored(store, names), _columns(store))
    return read if is_sealed else read_documents(read, [each.field for each in fields])


def _sizes(store: SealedStore) -> NDArray[np.int64]:
    """Bytes of each sample, all payload fields together."""
    every, total = np.arange(len(store)), np.zeros(len(store), np.int64)
    for field in store.schema.payload:
        total += store.spans(field.name, every, checksums=False).sizes
    return total


def _checksums(
    store: SealedStore, fields: Sequence[StoredField] | None
) -> Callable[[Indices], NDArray[np.uint32] | None]:
    """How to tell the checksums of samples by the index: of all payload fields, or of those that are packed."""
    used = store.schema.payload if fields is None else [each.source for each in fields if not each.source.is_column]
    names = dict.fromkeys(field.name for field in used)

    def checksums_at(indices: Indices) -> NDArray[np.uint32] | None:
        return joined_checksums([store.spans(name, indices).checksums for name in names])

    return checksums_at


def _metadata(
    name: str, store: SealedStore, fields: Sequence[StoredField] | None, unpacked: Sequence[str], *, is_sealed: bool
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
