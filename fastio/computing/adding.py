"""``add_field``: a field of another store or table, written beside a store as a field of its samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio.converters import pack
from fastio.converters.packing.options import Progress
from fastio.converters.packing.record import PackReport
from fastio.converters.sources.listed import ListedSource, read_stored
from fastio.converters.sources.options import source_record
from fastio.errors import SchemaError, StoreError
from fastio.store.beside.added import added_fields, added_to, fields_folder, last_added_to
from fastio.store.beside.joined import BesideStore, beside, open_beside
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.formats import FORMATS
from fastio.store.index.seal import set_checksum
from fastio.store.index.store import SealedStore
from fastio.store.opening import open_store
from fastio.types.options import explains_names
from fastio.types.schema import Schema
from fastio.types.units import counted

__all__ = ["add_field", "place_of_fields"]

_FORMAT = "lmdb"  # of a field of samples that lie in no container of fastio's


@explains_names(groups={"remote": Remote})
def add_field(  # noqa: PLR0913 - an option of the command each
    store: str | os.PathLike[str],
    name: str,
    source: str | os.PathLike[str] | SealedStore,
    *,
    field: str | None = None,
    on: str = "key",
    stems: bool = False,
    allow: Literal["extra", "double"] | Sequence[Literal["extra", "double"]] = (),
    shard_bytes: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    remote: Remote = DEFAULT,
) -> PackReport:
    """
    Add a field to a store that exists: ``name``, which ``source`` has for samples of the same keys::

        fastio.add_field("photos.lmdb", "latents", "latents.h5")
        dataset = FastDataset("photos.lmdb")  # with latents

    Nothing of ``store`` is written: the field becomes a store of its own in the folder ``photos.lmdb.fields``, with the
    samples of ``store`` in their order, and in shards if ``store`` is a set of them. It appears when it is complete.
    ``FastDataset``, ``FastLoader``, ``beside`` and the commands open both as one; ``open_store`` opens the store alone.
    A store that gets other content under its name needs its field anew (``overwrite``); a set that has grown, only that
    of its new samples, which ``append`` writes as further shards: ``source`` may then hold these alone.

    ``source`` is a store of any format, or a table; ``field`` is what it calls the field, if not ``name``. Its keys
    must be those of ``store``, each once, in any order: ``on``, ``stems`` and ``allow`` are those of
    ``fastio.beside``, but no sample may miss the field. ``shard_bytes``, ``resume``, ``overwrite`` and ``progress``
    are those of ``fastio.converters.pack``. ``remote`` is for a ``source`` behind a URL.

    Raises SchemaError for keys that do not match, and for a field that ``source`` lacks or ``store`` has already,
    StoreError for a store behind a URL or one of shards without a set object, and what opening and packing raise.
    """
    path = os.fspath(store)
    folder = place_of_fields(path)
    with ExitStack() as opened:
        first = opened.enter_context(open_store(path))
        if name in first.schema:
            raise SchemaError(f"{path}: has a field {name!r} already: give the new one another name")
        begin = _samples_with(first, added_fields(path).get(name), name) if append else 0
        other = source if isinstance(source, SealedStore) else open_beside(source, on=on, remote=remote)
        if other is not source:
            opened.enter_context(other)
        asked = field or name
        if asked not in other.schema:
            names = ", ".join(each.name for each in other.schema.fields)
            raise SchemaError(f"{other.path}: has no field {asked!r}, to be added as {name!r}; there is {names}")
        renamed = {each.name: name if each.name == asked else None for each in other.schema.fields}
        allowed = (*((allow,) if isinstance(allow, str) else allow), *(("missing",) if append else ()))
        both = beside(first, other, stems=stems, allow=allowed, fields=renamed)
        order = _samples_from(begin, both, first, other.path)
        Path(folder).mkdir(exist_ok=True)
        try:
            report = pack(
                replace(_added(both, name, first, other, asked), order=order),
                _place(first, folder, name),
                shard_bytes=shard_bytes,
                overwrite=overwrite,
                append=append,
                resume=resume,
                progress=progress,
            )
        finally:
            with suppress(OSError):
                Path(folder).rmdir()  # empty, if nothing was written
        beside(first, report.path).close()  # which keeps the map of their keys
    return report


def _samples_with(first: SealedStore, place: str | None, name: str) -> int:
    """Return how many samples of a set have a field, which is to be added to the others. Raises StoreError if none."""
    if place is None or first.set_object is None:
        raise StoreError(
            f"{first.path}: append: expected a set with the field {name!r}, which has got more samples since: add the "
            "field without --append"
        )
    with open_store(place) as field:
        count, known = len(field), last_added_to(field)
    before = [(each.count, each.size, each.file_crc) for each in first.set_object.members]
    samples = np.cumsum([0, *(each for each, *_ in before)])
    for number in np.flatnonzero(samples == count).tolist():
        if known == {"identity": set_checksum(before[:number]), "samples": count}:
            return count
    raise StoreError(
        f"{place}: was added to other samples than {first.path} began with: add the field anew (--overwrite)"
    )


def _samples_from(begin: int, both: BesideStore, first: SealedStore, path: str) -> NDArray[np.int64]:
    """Return those of the joined samples that are ``begin`` and later ones in the first store; all of them must be."""
    rows = both.members[0].rows
    rows = np.arange(len(both)) if rows is None else rows.astype(np.int64)
    order = np.flatnonzero(rows >= begin)
    if len(order) != len(first) - begin:
        missing = len(first) - begin - len(order)
        raise SchemaError(
            f"{path}: lacks {counted(missing, 'sample')} of the {len(first) - begin:,} new ones of {first.path}"
        )
    return order


def place_of_fields(path: str) -> str:
    """Return the folder of fields that are added to a store. Raises StoreError for one that can have none."""
    folder = fields_folder(path)
    if folder is None:
        raise StoreError(
            f"{path}: a field is added to a store of this machine that is one file, a folder or a set; for any other, "
            "write it as a store of its own, which fastio.beside (--beside) reads with this one"
        )
    return folder


def _place(first: SealedStore, folder: str, name: str) -> str:
    """Where the field goes: into a container as that of the store, in shards if the store has some."""
    form = FORMATS.get(first.format, FORMATS[_FORMAT])
    return f"{folder}/{name}{'-%06d' if first.set_object is not None and form.has_shards else ''}{form.suffixes[0]}"


def _added(both: BesideStore, name: str, first: SealedStore, other: SealedStore, asked: str) -> ListedSource:
    """The field as a source of samples: those of the first store, in their order."""
    of = both.schema[name]
    record = source_record("store", Path(other.path).name, labels=None, format=other.format)
    metadata: dict[str, Any] = {"classes": None, "source": record, **added_to(first)}
    classes = (other.metadata.get("field_classes") or {}).get(asked)
    if asked == "label":
        classes = other.metadata.get("classes")
    if classes:
        metadata |= {"classes": classes} if name == "label" else {"field_classes": {name: classes}}
    if other.metadata.get("tokenizer"):
        metadata["tokenizer"] = other.metadata["tokenizer"]
    return ListedSource(
        path=other.path,
        kind="store",
        schema=Schema((of,), is_per_sample=other.schema.is_per_sample),
        metadata=metadata,
        keys_at=both.keys,
        sizes=np.zeros(len(both), np.int64) if of.is_column else both.value_bytes(name),
        read=read_stored(both, [] if of.is_column else [name]),
        columns={name: both.column(name)} if of.is_column else {},
        disk_bytes=other.size_bytes,
        files_opened=len(other.shard_paths),
        paths=lambda: other.shard_paths,
        is_by_name=False,
        is_stored=True,
    )
