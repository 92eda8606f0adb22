"""Makes one set of the shards of several, without moving a byte of them: only a set object is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from fastio.errors import SchemaError, StoreError, StoreNotFound
from fastio.store import open_store
from fastio.store.beside.added import added_stores
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS
from fastio.store.index.metadata import merged_metadata
from fastio.store.index.sealed import Shard
from fastio.store.index.store import SealedStore
from fastio.store.sets.names import SET_SUFFIX, listed_name
from fastio.store.sets.seal import seal_set
from fastio.store.sets.set_object import SetMember, read_set
from fastio.store.write.locks import claimed

__all__ = [
    "MergeReport",
    "MergedStore",
    "merge_stores",
]


@dataclass(frozen=True, slots=True)
class MergedStore:
    """One of the stores that were merged."""

    path: str
    shards: int
    samples: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge has made: ``path`` is the set object, whose shards are those of ``merged``, in this order."""

    path: str
    generation: int
    shards: int
    samples: int
    size_bytes: int  # of the shards
    merged: tuple[MergedStore, ...]


def merge_stores(paths: Sequence[str], out: str, *, overwrite: bool = False, remote: Remote = DEFAULT) -> MergeReport:
    """
    Write the set object ``out``, whose samples are those of the stores ``paths``, one store after the other.

    No shard is copied or moved: the set lists those of ``out``'s own folder by name, others by absolute path or URL,
    and does not open once one of them is gone. Raises SchemaError if fields, classes, tokenizers or keys do not go
    together, and StoreError if a store has no shards that were packed by fastio, or if ``out`` exists and is not to
    be replaced.
    """
    _check_out(out)
    if len(paths) < 2:
        raise StoreError(f"{out}: expected two stores or more to merge, got {len(paths)}")
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice is not None:
        raise StoreError(f"{twice}: is named twice, but no two samples of a set have the same key: name it once")
    with ExitStack() as opened:
        if is_local(out):
            opened.enter_context(claimed(out))
        stores = [opened.enter_context(open_store(path, remote=remote)) for path in paths]
        _check_added(paths)
        _check_kinds(stores)
        _check_schemas(stores)
        _check_reachable(out, stores)
        metadata = merged_metadata(stores)
        members = [list(_members(store, out)) for store in stores]
        generation = _next_generation(out, overwrite=overwrite, remote=remote)
        seal_set(
            out,
            [member.name for of_store in members for _, member in of_store],
            FORMATS[stores[0].format],
            metadata=json.dumps(metadata, separators=(",", ":")).encode("ascii"),
            generation=generation,
            replace=generation > 1,
            options=remote,
            opened=[shard for of_store in members for shard in of_store],
            merged=[store.set_object for store in stores if store.set_object is not None and is_local(store.path)],
        )
        merged = tuple(
            MergedStore(store.path, len(shards), len(store), sum(member.size for _, member in shards))
            for store, shards in zip(stores, members, strict=True)
        )
    return MergeReport(
        path=out,
        generation=generation,
        shards=sum(store.shards for store in merged),
        samples=sum(store.samples for store in merged),
        size_bytes=sum(store.size_bytes for store in merged),
        merged=merged,
    )


def _check_added(paths: Sequence[str]) -> None:
    """Raise StoreError for a store to which fields were added: a set lists the shards alone."""
    for path in paths:
        added = added_stores(path)
        if added:
            raise StoreError(
                f"{path}: a merge would leave out {', '.join(added)}, which fastio add-field added: pack it with its "
                "fields first (fastio pack), and merge that"
            )


def _check_out(out: str) -> None:
    if not out.endswith(SET_SUFFIX):
        raise StoreError(f"{out}: a merge writes a set object: choose a name that ends in {SET_SUFFIX}")


def _next_generation(out: str, *, overwrite: bool, remote: Remote) -> int:
    folder, name = folder_of(out, remote)
    try:
        before = read_set(folder.open(name), with_index=False)
    except StoreNotFound:
        return 1
    if not overwrite:
        raise StoreError(f"{out}: exists; choose another name, or --overwrite (in Python overwrite=True)")
    return before.generation + 1


def _check_kinds(stores: Sequence[SealedStore]) -> None:
    """Raise StoreError for a store that no set can list, or for a mixture of formats."""
    for store in stores:
        if not FORMATS[store.format].has_shards:
            raise StoreError(
                f"{store.path}: {FORMATS[store.format].file} is not a shard: pack it into shards first: "
                f"fastio pack {store.path} NAME-%06d.tar"
            )
        if any(not shard.checksums for shard in store.shards if shard.count):
            raise StoreError(
                f"{store.path}: was not packed by fastio and has no checksums, so a set could not notice that a shard "
                f"has changed: pack it first: fastio pack {store.path} NAME-%06d.tar"
            )
        if store.format != stores[0].format:
            raise StoreError(
                f"{store.path}: has {store.format} shards, but {stores[0].path} has {stores[0].format}: "
                "a set has shards of one format: pack one of them again"
            )


def _held(store: SealedStore) -> str:
    """What the samples of a store hold, and how, in words."""
    fields = ", ".join(map(str, store.schema.fields))
    return f"{fields} (--per-sample: a value for each sequence)" if store.schema.is_per_sample else fields


def _check_schemas(stores: Sequence[SealedStore]) -> None:
    first = stores[0]
    for store in stores[1:]:
        if store.schema != first.schema:
            fields, expected = (_held(each) for each in (store, first))
            raise SchemaError(
                f"{store.path}: holds {fields}, but {first.path} holds {expected}: the samples of one set have "
                "the same fields: pack them the same way"
            )


def _check_reachable(out: str, stores: Sequence[SealedStore]) -> None:
    """Raise StoreError if some shards lie on this machine and others behind URLs: no reader joins these."""
    here = next((store for store in stores if any(map(is_local, store.shard_paths))), None)
    behind_url = next((store for store in stores if not all(map(is_local, store.shard_paths))), None)
    if here is not None and behind_url is not None:
        raise StoreError(
            f"{out}: {here.path} has shards on this machine, {behind_url.path} behind a URL, and one set is read from "
            f"one kind of place: copy the second one here (fastio stage {behind_url.path} DIR), or the first one there"
        )


def _members(store: SealedStore, out: str) -> Iterator[tuple[Shard, SetMember]]:
    """Yield the shards of a store and how the set ``out`` lists them."""
    listed = None if store.set_object is None else store.set_object.members
    for number, shard in enumerate(store.shards):
        name = listed_name(shard.path, out)
        if listed is not None:
            member = listed[number]
            yield shard, SetMember(name, member.count, member.size, member.file_crc, member.plan)
        else:
            assert shard.seal is not None, "checked"
            yield shard, SetMember(name, shard.count, shard.seal.file_size, shard.seal.file_crc, shard.seal.plan)
