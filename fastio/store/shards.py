"""What opening a store has in common for files of this machine and for objects behind URLs, and for sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.address import Address
from fastio.store.files import ByteSource, Read, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.formats import looks_like
from fastio.store.formats.format import HEAD_BYTES, Format
from fastio.store.formats.tar_file import INDEX_FOLDER
from fastio.store.index.sealed import Shard, bytes_from, read_shard
from fastio.store.index.store import SealedStore, check_set
from fastio.store.jump_tables import read_added
from fastio.store.sets.names import SET_SUFFIX
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.store.staging.staged import StageInUse

__all__ = [
    "Way",
    "open_set",
    "open_shard",
    "store_of",
]


@dataclass(frozen=True, slots=True)
class Way:
    """
    How the files of a store are opened: ``opener`` does it again in the process that unpickles the store. With
    ``jump``, start points of pictures in place are noted when these are first read.
    """

    read: Read
    remote: Remote
    opener: Callable[[str], SealedStore]
    stage: StageInUse | None = None
    jump: bool = False


def store_of(path: str, form: Format, shards: Sequence[Shard], way: Way) -> SealedStore:
    """Return the store of these shards. Raises StoreIncomplete if a set object is missing that should list them."""
    sealed = [shard for shard in shards if shard.seal is not None]
    if sealed and len(sealed) < len(shards):
        other = next(shard.path for shard in shards if shard.seal is None)
        raise StoreError(f"{path}: {sealed[0].path} was packed by fastio, {other} was not; open them one by one")
    # Shards that no set object lists are of a pack that has not finished, beside the set that it may replace.
    shards = [shard for shard in shards if shard.seal is None or not shard.seal.is_alone]
    if not shards:
        raise _unfinished(path, form, sealed)
    check = check_set if sealed or form.foreign is None else form.foreign.check_set
    return SealedStore(path, format_name=form.name, shards=check(path, shards), opener=way.opener)


def _unfinished(path: str, form: Format, shards: Sequence[Shard]) -> StoreIncomplete:
    """Return the error for shards that were sealed alone, where nothing says which of them are a set."""
    if [path] == [shard.path for shard in shards]:
        return StoreIncomplete(
            f"{path}: is one shard of a set: open the set by its set object (name{SET_SUFFIX}) or its pattern "
            f"(name-%06d{form.suffixes[0]})"
        )
    return StoreIncomplete(
        f"{path}: {counted(len(shards), 'shard')}, no set object: packing has not finished, or it was not copied with "
        "them: go on with --resume, or seal them (fastio seal)"
    )


def open_shard(path: str, form: Format, way: Way) -> Shard:
    """Open one shard that no set object lists, or a store of one file."""
    file = open_file(path, way.read, way.remote)
    try:
        if way.stage is not None:
            way.stage.use_for_shard(file, form)
        return _read_or_scan(file, form)
    finally:
        file.release()


def _read_or_scan(file: ByteSource, form: Format) -> Shard:
    try:
        return read_added(read_shard(file, format_name=form.name, seal_at=form.seal_at))
    except StoreIncomplete as exc:
        if form.foreign is None:
            _refuse_other_content(file, form, exc)
            _refuse_cut_off(file, form, exc)
            raise
        if not is_local(file.path):
            raise _unindexed(file) from exc
    try:
        return form.foreign.open(file)
    except StoreError as exc:
        _refuse_other_content(file, form, exc)
        raise


def _unindexed(file: ByteSource) -> StoreError:
    """Return the error for a file without a seal, which cannot be scanned behind a URL."""
    if file.read(0, min(HEAD_BYTES, file.size)).tobytes().startswith(INDEX_FOLDER.encode()):
        return StoreCorrupt(f"{file.path}: packed by fastio, but its seal is missing or damaged: copy or pack again")
    return StoreError(
        f"{file.path}: has no seal of fastio: if another tool wrote it, index it and its like once, by `fastio index "
        f"{file.path} --to DIR` (or a pattern of all shards), and open DIR/NAME{SET_SUFFIX}"
    )


def _refuse_other_content(file: ByteSource, form: Format, error: StoreError) -> None:
    """Raise StoreIncomplete if a file that could not be opened looks like one of another format."""
    content = looks_like(file.read(0, min(HEAD_BYTES, file.size)).tobytes(), likely=form)
    if content is not None and content is not form:
        raise StoreIncomplete(
            f"{file.path}: its content looks like {content.name}, but its name says {form.name}: give it the "
            "right suffix"
        ) from error


def _refuse_cut_off(file: ByteSource, form: Format, error: StoreError) -> None:
    """Raise StoreIncomplete if a file that could not be opened says itself that its end is missing."""
    cut = form.cut_off(file.size, partial(bytes_from, file))
    if cut:
        raise StoreIncomplete(f"{file.path}: {cut}") from error


# Opens the set of a set object, on this machine or behind a URL.


def open_set(address: Address, set_object: str, way: Way) -> SealedStore:
    """Open the set of this object, which the user named by ``address``."""
    from fastio.store.sets.members import open_members
    from fastio.store.sets.set_object import read_set

    folder, name = folder_of(set_object, way.remote)
    source = folder.open(name, way.read)
    if way.stage is not None:
        way.stage.use_for_set_object(source)
    found = read_set(source)
    address.check_names(found)
    shards = open_members(found, read=way.read, options=way.remote)
    if way.stage is not None:
        way.stage.use_for_members(shards)
    return SealedStore(
        address.path, format_name=found.format, shards=shards, opener=way.opener, index=shards.joined, set_object=found
    )
