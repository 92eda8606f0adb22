"""Makes one set of the shards of several, without moving a byte of them: only a set object is written."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from fastio.errors import SchemaError, StoreError, StoreNotFound
from fastio.store import open_store
from fastio.store.beside.added import added_stores, added_to, names_joined, open_added, path_of_added
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS
from fastio.store.index.metadata import merged_metadata
from fastio.store.index.sealed import AllShards
from fastio.store.index.store import SealedStore
from fastio.store.sets.names import SET_SUFFIX, listed_name
from fastio.store.sets.seal import seal_set, sealed_member
from fastio.store.sets.set_object import SetMember, SetMembers, check_keys, read_set
from fastio.store.write.atomic import writing
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
    """
    What a merge has made: ``path`` is the set object, whose shards are those of ``merged``, in this order. ``fields``
    are those that were added to all of these, and so to the new set.
    """

    path: str
    generation: int
    shards: int
    samples: int
    size_bytes: int  # of the shards, without those of added fields
    merged: tuple[MergedStore, ...]
    fields: tuple[str, ...] = ()


def merge_stores(paths: Sequence[str], out: str, *, overwrite: bool = False, remote: Remote = DEFAULT) -> MergeReport:
    """
    Write the set object ``out``, whose samples are those of the stores ``paths``, one store after the other.

    No shard is copied or moved: the set lists those of ``out``'s own folder by name, others by absolute path or URL,
    and does not open once one of them is gone. Fields that were added to all of the stores (``fastio add-field``) are
    merged likewise, and are there before a new set is. Raises SchemaError if fields, classes, tokenizers or keys do
    not go together, and StoreError if a store has no shards that were packed by fastio, if a field was added to some
    of the stores alone, or if ``out`` exists and is not to be replaced.
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
        _check_stores(stores)
        _check_reachable(out, stores)
        fields = _added_together(paths)
        metadata = merged_metadata(stores)
        members = [_members(store, out) for store in stores]
        generation = _next_generation(out, overwrite=overwrite, remote=remote)
        replaced = _replaced(out, fields)
        added = [open_added(store, path, open_store) for store, path in zip(stores, paths, strict=True)]
        for store in (store for of_store in added for store in of_store):
            opened.enter_context(store)
        of_fields = dict(zip(fields, zip(*added, strict=True), strict=True))
        belongs_to = added_to(*_content(members))
        if fields:
            with writing(out):
                check_keys(out, AllShards([store.shards for store in stores]))  # before their fields
        # Fields that the set does not have yet come first: without them it would open, too. Those that it has come
        # last: in between it is as one that has grown, which does not open until add-field --append has mended it.
        for joined in (each for each in fields if each not in replaced):
            _merge_added(of_fields[joined], path_of_added(out, joined), belongs_to)
        _seal(out, stores, members, metadata, generation=generation, remote=remote)
        for joined in (each for each in fields if each in replaced):
            _merge_added(of_fields[joined], path_of_added(out, joined), belongs_to)
        merged = tuple(
            MergedStore(store.path, len(listed), len(store), sum(member.size for member in listed))
            for store, listed in zip(stores, members, strict=True)
        )
    return MergeReport(
        path=out,
        generation=generation,
        shards=sum(store.shards for store in merged),
        samples=sum(store.samples for store in merged),
        size_bytes=sum(store.size_bytes for store in merged),
        merged=merged,
        fields=tuple(name for joined in of_fields for name in names_joined(joined)),
    )


_Members = Sequence[Sequence[SetMember]]  # the shards of each store, as a set lists them


def _seal(
    out: str,
    stores: Sequence[SealedStore],
    members: _Members,
    metadata: Mapping[str, Any],
    *,
    generation: int,
    remote: Remote = DEFAULT,
) -> None:
    """Write the set object that lists the shards of these stores."""
    seal_set(
        out,
        [member.name for of_store in members for member in of_store],
        FORMATS[stores[0].format],
        metadata=json.dumps(metadata, separators=(",", ":")).encode("ascii"),
        generation=generation,
        replace=generation > 1,
        options=remote,
        opened=(AllShards([store.shards for store in stores]), SetMembers.of(chain.from_iterable(members))),
        merged=[store.set_object for store in stores if store.set_object is not None and is_local(store.path)],
    )


def _content(members: _Members) -> tuple[int, int]:
    """Return the identity of the set that lists these shards, and how many samples it has."""
    listed = SetMembers.of(chain.from_iterable(members))
    return listed.checksum, listed.samples


# Fields that were added to the stores.


def _added_together(paths: Sequence[str]) -> Set[str]:
    """Return what was added to all of the stores, by ``joined_name``. Raises StoreError for what others lack."""
    first, *others = [added_stores(path) for path in paths]
    for path, other in zip(paths[1:], others, strict=True):
        odd = next(iter(first.keys() ^ other.keys()), None)
        if odd is not None:
            having, lacking = (paths[0], path) if odd in first else (path, paths[0])
            names = names_joined(odd)
            raise StoreError(
                f"{lacking}: lacks {' and '.join(names)}, added {'together ' * (len(names) > 1)}to {having}: add the "
                f"same to both (fastio add-field {lacking} {' '.join(names)}), or pack {having} with its fields as one "
                "store (fastio pack)"
            )
    return first.keys()


def _replaced(out: str, fields: Set[str]) -> Mapping[str, str]:
    """
    Return the added fields of a set that is replaced. Raises StoreError if it has others, which would not be those of
    the new one.
    """
    there = added_stores(out)
    for joined, place in there.items():
        if joined not in fields:
            raise StoreError(
                f"{place}: was added to the set that {out} is now, and would not belong to the new one: remove it "
                "first, or choose another name for the set"
            )
    return there


def _merge_added(stores: Sequence[SealedStore], out: str, belongs_to: Mapping[str, Any]) -> None:
    """Write the set object of an added field, or several, whose shards are those of each store's own."""
    folder = os.path.dirname(out)  # noqa: PTH120 - as the paths of shards are
    with writing(out):
        Path(folder).mkdir(exist_ok=True)
    _check_stores(stores)
    members = [
        [replace(member, name=_near(member.name, folder)) for member in _members(store, out)] for store in stores
    ]
    metadata = {**merged_metadata(stores), **belongs_to}
    _seal(out, stores, members, metadata, generation=_next_generation(out, overwrite=True, remote=DEFAULT))


def _near(name: str, folder: str) -> str:
    """Return the name of a shard in a folder beside this one, by which both may be moved; others as they are."""
    above = os.path.dirname(name)  # noqa: PTH120
    if not above or os.path.realpath(os.path.dirname(above)) != os.path.realpath(f"{folder}/.."):  # noqa: PTH120
        return name
    return os.path.join("..", os.path.basename(above), os.path.basename(name))  # noqa: PTH118, PTH119


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


def _check_stores(stores: Sequence[SealedStore]) -> None:
    """Raise StoreError for a store that no set can list, or for a mixture of formats; SchemaError for other fields."""
    for store in stores:
        if not FORMATS[store.format].has_shards:
            raise StoreError(
                f"{store.path}: {FORMATS[store.format].file} is not a shard: train on several stores as they are by a "
                "ConcatDataset of FastDatasets, or pack each into shards and merge those: "
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
    _check_schemas(stores)


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


def _members(store: SealedStore, out: str) -> Sequence[SetMember]:
    """Return how the set ``out`` lists the shards of a store."""
    names = [listed_name(path, out) for path in store.shard_paths]
    if store.set_object is not None:
        return store.set_object.members.renamed(names)
    members = []
    for name, shard in zip(names, store.shards, strict=True):
        assert shard.seal is not None, "checked"
        members.append(sealed_member(name, shard.seal))
    return members
