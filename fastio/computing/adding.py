"""``add_field``: fields of another store or table, written beside a store as fields of its samples."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio.converters import Part, pack
from fastio.converters.fields.values import read_documents
from fastio.converters.packing.options import Progress
from fastio.converters.packing.record import PackReport
from fastio.converters.sources.listed import ListedSource, read_stored
from fastio.converters.sources.options import source_record
from fastio.converters.sources.store import checksums_of, sizes_of
from fastio.errors import SchemaError, StoreError
from fastio.store.beside.added import (
    added_stores,
    added_to,
    fields_folder,
    joined_name,
    last_added_to,
    names_joined,
)
from fastio.store.beside.joined import BesideStore, Member, beside, open_beside
from fastio.store.beside.key_map import map_of
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.formats import FORMATS
from fastio.store.index.seal import set_checksum
from fastio.store.index.store import SealedStore
from fastio.store.opening import open_store
from fastio.store.sets.names import NumberedName
from fastio.types.options import explains_names
from fastio.types.schema import Schema
from fastio.types.units import counted

__all__ = ["add_field", "place_of_fields"]

_FORMAT = "lmdb"  # of fields of samples that lie in no container of fastio's
_LONGEST_NAME = 200  # bytes of a file's name, of which file systems take 255, a partial file's included


@explains_names(groups={"remote": Remote})
def add_field(  # noqa: PLR0913 - an option of the command each
    store: str | os.PathLike[str],
    name: str | Sequence[str],
    source: str | os.PathLike[str] | SealedStore,
    *,
    field: str | Sequence[str] | None = None,
    on: str = "key",
    stems: bool = False,
    allow: Literal["extra", "double"] | Sequence[Literal["extra", "double"]] = (),
    shard_bytes: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    resume: bool = False,
    part: Part | None = None,
    progress: Progress | None = None,
    remote: Remote = DEFAULT,
) -> PackReport:
    """
    Add fields to a store that exists: ``name``, or several names, which ``source`` has for samples of the same keys::

        fastio.add_field("photos.lmdb", "latents", "latents.h5")
        fastio.add_field("photos.lmdb", ["caption", "score"], "captions.parquet", on="file_name")
        dataset = FastDataset("photos.lmdb")  # with latents, caption and score

    Nothing of ``store`` is written: the fields of a call become a store in the folder ``photos.lmdb.fields``, with the
    samples of ``store`` in their order, and in shards if ``store`` is a set of them. It appears when it is complete, so
    all of them are added, in the order of their names, or none is. ``FastDataset``, ``FastLoader``, ``beside`` and the
    commands open both as one; ``open_store`` opens the store alone. A store that gets other content under its name
    needs its fields anew (``overwrite``, with the names that were added together); a set that has grown, only those of
    its new samples, which ``append`` writes as further shards: ``source`` may then hold these alone.

    ``source`` is a store of any format, or a table; ``field`` is what it calls the field, or the fields, if not
    ``name``. Its keys must be those of ``store``, each once, in any order: ``on``, ``stems`` and ``allow`` are those of
    ``fastio.beside``, but no sample may miss the field. ``shard_bytes``, ``resume``, ``overwrite``, ``part`` and
    ``progress`` are those of ``fastio.converters.pack``. ``remote`` is for a ``source`` behind a URL.

    Raises SchemaError for keys that do not match, and for a field that ``source`` lacks or ``store`` has already,
    StoreError for a store behind a URL or one of shards without a set object, ValueError for names that come twice, and
    what opening and packing raise.
    """
    path = os.fspath(store)
    folder = place_of_fields(path)
    asked = _asked(name, field)
    with ExitStack() as opened:
        first = opened.enter_context(open_store(path))
        out = _place(first, folder, asked)
        _check_free(path, first, asked)
        if NumberedName.parse(Path(out).name) is None and (resume or part is not None):
            raise StoreError(
                f"{path}: is no set, so its fields become one file, which is written as a whole: add them without "
                f"{'--resume' if resume else '--part'}"
            )
        begin = _samples_with(first, added_stores(path).get(joined_name(asked)), asked) if append else 0
        allowed = (*((allow,) if isinstance(allow, str) else allow), *(("missing",) if append else ()))
        if isinstance(source, SealedStore):
            others = [source]
        else:
            others = open_beside(source, on=on, allowed=allowed, remote=remote)
        for other in others if others != [source] else ():
            opened.enter_context(other)
        there = [each.name for other in others for each in other.schema.fields]
        lacking = next((new for new, own in asked.items() if own not in there), None)
        if lacking is not None:
            raise SchemaError(
                f"{others[0].path}: has no field {asked[lacking]!r}, to be added as {lacking!r}; there is "
                f"{', '.join(there)}"
            )
        renamed = dict.fromkeys(there) | {own: new for new, own in asked.items()}
        try:
            both = beside(first, *others, stems=stems, allow=allowed, fields=renamed)
        except SchemaError as exc:
            missing = [] if append else map_of(first, others[0], stems=stems).missing.first
            if not missing:
                raise
            raise SchemaError(
                f"{others[0].path}: lacks keys that {path} has, such as {missing[0]!r}; a field is added to every "
                "sample: pack the missing ones, or read those that have it by fastio.beside(..., allow='missing') "
                "(--beside, --allow missing)"
            ) from exc
        order = _samples_from(begin, both, first, others[0].path)
        Path(folder).mkdir(exist_ok=True)
        try:
            report = pack(
                replace(_added(both, list(asked), first, others), order=order),
                out,
                shard_bytes=shard_bytes,
                overwrite=overwrite,
                append=append,
                resume=resume,
                part=part,
                progress=progress,
            )
        finally:
            if part is None:
                with suppress(OSError):
                    Path(folder).rmdir()  # empty, if nothing was written
        if not report.missing:
            beside(first, report.path).close()  # which keeps the map of their keys
    return report


def _asked(name: str | Sequence[str], field: str | Sequence[str] | None) -> dict[str, str]:
    """Return what the source calls each field, by the name that it gets."""
    names = [name] if isinstance(name, str) else list(name)
    own = names if field is None else [field] if isinstance(field, str) else list(field)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"name={name!r}: expected the name of a field, or several different ones")
    if len(own) != len(names) or len(set(own)) < len(own):
        raise ValueError(f"field={field!r}: expected another field of the source for each of {', '.join(names)}")
    return dict(sorted(zip(names, own, strict=True)))  # so that merged sets have them in one order


def _check_free(path: str, first: SealedStore, names: Collection[str]) -> None:
    """Raise SchemaError for a field that the store has itself, StoreError for one that was added with others."""
    own = next((name for name in names if name in first.schema), None)
    if own is not None:
        raise SchemaError(f"{path}: has a field {own!r} already: give the new one another name")
    for joined, place in added_stores(path).items():
        there = names_joined(joined)
        if joined != joined_name(names) and not set(there).isdisjoint(names):
            raise StoreError(
                f"{place}: holds {' and '.join(there)}, which would not be replaced together with "
                f"{' and '.join(names)}: name the same fields, or remove it"
            )


def _samples_with(first: SealedStore, place: str | None, names: Iterable[str]) -> int:
    """Return how many samples of a set have fields, which are to be added to the others. Raises StoreError if none."""
    if place is None or first.set_object is None:
        raise StoreError(
            f"{first.path}: append: expected a set with {_fields(names)}, which has got more samples since: "
            "add without --append"
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


def _fields(names: Iterable[str]) -> str:
    """Return fields in words."""
    quoted = [repr(name) for name in names]
    return f"the field{'s' * (len(quoted) > 1)} {', '.join(quoted)}"


def _place(first: SealedStore, folder: str, names: Collection[str]) -> str:
    """Where the fields go: into a container as that of the store, in shards if the store has some."""
    form = FORMATS.get(first.format, FORMATS[_FORMAT])
    number = "-%06d" if first.set_object is not None and form.has_shards else ""
    name = f"{joined_name(names)}{number}{form.suffixes[0]}"
    if len(name) > _LONGEST_NAME:
        raise StoreError(f"{folder}: {name}: is too long for the name of a file: add fewer fields together")
    return f"{folder}/{name}"


def _added(both: BesideStore, names: Sequence[str], first: SealedStore, others: Sequence[SealedStore]) -> ListedSource:
    """The fields as a source of samples: those of the first store, in their order."""
    fields = [both.schema[name] for name in names]
    payload = [field.name for field in fields if not field.is_column]
    is_sealed = all(shard.is_sealed for store in (first, *others) for shard in store.shards)
    read = read_stored(both, payload)
    source = others[0]
    paths = [path for other in others for path in other.shard_paths]
    record = source_record("store", Path(source.path).name, labels=None, format=source.format)
    return ListedSource(
        path=source.path,
        kind="store",
        schema=Schema(tuple(fields), is_per_sample=any(each.store.schema.is_per_sample for each in _bringing(both))),
        metadata={"classes": None, "source": record, **_meanings(both), **added_to(first.identity, len(first))},
        keys_at=both.keys,
        sizes=sizes_of(both, payload),
        read=read if is_sealed else read_documents(read, [field for field in fields if not field.is_column]),
        columns={field.name: both.column(field.name) for field in fields if field.is_column},
        disk_bytes=sum(other.size_bytes for other in others),
        files_opened=len(paths),
        paths=lambda: paths,
        is_by_name=False,
        is_stored=is_sealed,
        checksums_at=checksums_of(both, payload) if is_sealed else None,
    )


def _bringing(both: BesideStore) -> list[Member]:
    """Return the stores that bring a field to the first one."""
    return [member for member in both.members[1:] if member.names]


def _meanings(both: BesideStore) -> dict[str, Any]:
    """
    Return what the metadata say of the fields that are added: the names of classes, and the tokenizer.

    Raises SchemaError for token ids that mean other words than those of the store.
    """
    found, classes = dict[str, Any](), dict[str, Any]()
    tokenizer = both.metadata.get("tokenizer")  # of all, which are compared here
    for member in _bringing(both):
        known = member.store.metadata
        if tokenizer and known.get("tokenizer"):
            found["tokenizer"] = known["tokenizer"]
        for name, own in member.names.items():
            names = known.get("classes") if own == "label" else (known.get("field_classes") or {}).get(own)
            if names and name == "label":
                found["classes"] = names
            elif names:
                classes[name] = names
    if classes:
        found["field_classes"] = classes
    return found
