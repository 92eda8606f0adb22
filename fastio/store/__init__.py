"""Packed containers: the two functions that open and create a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.file_writer import SealedAlone
from fastio.store.files import ByteSource, Read, check_read, open_file
from fastio.store.files.local import check_address, is_local
from fastio.store.files.remote.range_cache import RangeCache
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.format import HEAD_BYTES, Format
from fastio.store.formats import FORMATS, holds_shards, looks_like, shard_suffixes
from fastio.store.index import SealedStore, check_set
from fastio.store.sample_store import SampleBatch, SampleStore, SampleWriter
from fastio.store.sealed import Shard, read_shard
from fastio.store.members import open_members
from fastio.store.set_lookup import set_of_path
from fastio.store.set_names import SET_SUFFIX
from fastio.store.set_object import read_set
from fastio.store.set_output import SetOutput
from fastio.store.single_output import SingleOutput
from fastio.store.staging.staged import StageInUse
from fastio.store.tar_names import INDEX_FOLDER
from fastio.store.target import expand, match_format, target_format
from fastio.store.urls import check_named, set_of_url, shards_of_url
from fastio.store.write_target import Target
from fastio.store.writer import SealedWriter
from fastio.types.schema import Schema
from fastio.types.units import counted

__all__ = [
    "FORMATS",
    "Format",
    "SampleBatch",
    "SampleStore",
    "SampleWriter",
    "check_target",
    "create_shard",
    "create_store",
    "format_of",
    "holds_shards",
    "open_store",
]

_SHARD_BYTES = 1 << 30
_OPENED_AT_ONCE = 16  # shards behind URLs, each of which takes some requests
_Opened = TypeVar("_Opened")
_ATTEMPTS = 10  # attempts to open a set that others replace meanwhile


@dataclass(frozen=True, slots=True)
class _Way:
    """How the files of a store are opened: ``opener`` does it again in the process that unpickles the store."""

    read: Read
    remote: RemoteOptions
    opener: Callable[[str], SealedStore]
    stage: StageInUse | None = None


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the name in FORMATS for a path's suffix. Raises StoreError for an unknown suffix."""
    return match_format(os.fspath(path)).name


def open_store(path: str | os.PathLike[str], *, read: Read = "auto", remote: RemoteOptions = DEFAULT) -> SealedStore:
    """
    Open a packed dataset; its suffix names the format in FORMATS.

    Shards are named by ``name-{000000..000009}.tar``, ``name-%06d.tar``, ``name-*.tar``, their folder or the set
    object beside them; all of these may be URLs, which ``remote`` says how to read. Tar files that others wrote open
    too: they are scanned once. A store behind a URL is copied to ``remote.stage`` while it is
    read.

    ``read`` says how bytes are read: "map" maps the files into memory, "pread" reads each run of bytes by a call of its
    own, "remote" asks a server for ranges; "auto" takes that for URLs, "pread" on network file systems, "map"
    elsewhere.

    Raises StoreNotFound, StoreIncomplete (no seal) or StoreCorrupt, and StoreError for a newer version.
    """
    check_read(read)
    check_address(path)
    path = os.fspath(path)
    if not is_local(path):
        return _open_url(path, read, remote)
    for _ in range(_ATTEMPTS):
        before = _version(path)
        try:
            return _open_path(path, read, remote)
        except StoreError:
            if before == _version(path):
                raise  # the store was not replaced meanwhile
    return _open_path(path, read, remote)


def _open_path(path: str, read: Read, remote: RemoteOptions) -> SealedStore:
    way = _Way(read, remote, partial(open_store, read=read, remote=remote))
    set_object = set_of_path(path)
    if set_object is not None:
        return _open_set(path, set_object, way)
    form = match_format(path)
    return _open_files(path, form, expand(path, form), way)


def _version(path: str) -> list[tuple[str, tuple[int, int] | None]]:
    """Return which files a path stands for at the moment, with their inodes; nothing for an impossible path."""
    try:
        set_object = set_of_path(path)
        return _inodes([set_object] if set_object is not None else expand(path, match_format(path)))
    except StoreError:
        return []


def _open_url(url: str, read: Read, remote: RemoteOptions, *, is_again: bool = False) -> SealedStore:
    """Open the store at a URL. Opening it again, as a worker process does, uses a stage, but begins none."""
    stage = StageInUse(remote.stage, remote) if remote.stage is not None else None
    way = _Way(read, remote, partial(_open_url, read=read, remote=remote, is_again=True), stage)
    store = _open_by(way, url)
    if stage is not None and not is_again:
        stage.begin(url)
    return store


def _open_by(way: _Way, url: str) -> SealedStore:
    remote = way.remote
    set_object = set_of_url(url, remote)
    if set_object is not None:
        try:
            return _twice(partial(_open_set, url, set_object, way), remote)
        except StoreNotFound:
            if set_object == url:
                raise
    form, files = shards_of_url(url, remote)
    return _open_files(url, form, files, way)


def _twice(attempt: Callable[[], _Opened], remote: RemoteOptions) -> _Opened:
    """
    Return what an attempt to open objects returns, the second one if the first finds damage.

    Bytes may have changed on their way, and then lie so in the cache directory.
    """
    try:
        return attempt()
    except (StoreCorrupt, StoreIncomplete):
        cache = RangeCache.of(remote)
        if cache is not None:
            cache.forget_indexes()
        return attempt()


def _open_set(path: str, set_object: str, way: _Way) -> SealedStore:
    """Open the set of this object, which the user named by ``path``."""
    folder, name = folder_of(set_object, way.remote)
    source = folder.open(name, way.read)
    if way.stage is not None:
        way.stage.use_for_set_object(source)
    found = read_set(source)
    check_named(path, found)
    shards = open_members(found, read=way.read, options=way.remote)
    if way.stage is not None:
        way.stage.use_for_members(shards)
    return SealedStore(
        path, format_name=found.format, shards=shards, opener=way.opener, index=shards.joined, set_object=found
    )


def create_shard(
    path: str | os.PathLike[str], schema: Schema, *, plan: int, number: int, overwrite: bool = False
) -> SealedWriter:
    """
    Return a writer for one shard of a set, a file of its own that is sealed alone; ``sets.seal_set`` makes the set.

    ``plan`` (0 to 2**64 - 1) says which division of which source the shard belongs to, ``number`` its place there.
    """
    target = _target(os.fspath(path), overwrite=overwrite, shard_bytes=None)
    if not overwrite:
        target.check_free()
    return SealedWriter(target.path, target.format, schema, SingleOutput(target, alone=SealedAlone(plan, number)))


def _open_files(path: str, form: Format, files: Sequence[str], way: _Way) -> SealedStore:
    shards = _open_shards(files, form, way)
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


def create_store(
    path: str | os.PathLike[str], schema: Schema, *, overwrite: bool = False, shard_bytes: int | None = None
) -> SealedWriter:
    """
    Return a writer for a new store; its suffix names the format.

    Shards are written to ``name-%06d.tar`` (or ``%d``), each up to ``shard_bytes`` (default: 1 GiB) of samples, or a
    single larger sample, and have their names as they fill; the set object, which makes a set of them, comes last. An
    existing store is replaced only with ``overwrite``, and only once the new store is complete.
    """
    target = _target(os.fspath(path), overwrite=overwrite, shard_bytes=shard_bytes)
    if not is_local(target.path):
        raise StoreError(
            f"{target.path}: what is streamed (text, fastio.Writer, datasets) is packed on this machine: choose a "
            "local name, and pack that store to the URL"
        )
    output = SetOutput(target, shard_bytes=shard_bytes or _SHARD_BYTES) if target.is_set else SingleOutput(target)
    return SealedWriter(target.path, target.format, schema, output)


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False, shard_bytes: int | None = None) -> None:
    """Raise StoreError if ``create_store`` would refuse these arguments; changes nothing."""
    _target(os.fspath(path), overwrite=overwrite, shard_bytes=shard_bytes).check()


def _target(path: str, *, overwrite: bool, shard_bytes: int | None) -> Target:
    check_address(path)
    target = Target(path, target_format(path), overwrite)
    if target.is_set and not target.format.has_shards:
        others = " or ".join(shard_suffixes())
        raise StoreError(f"{path}: {target.format.name} stores are one file: drop the number, or pack to {others}")
    if not target.is_set and shard_bytes is not None:
        raise StoreError(f"{path}: a shard size needs a name with a number, e.g. name-%06d.tar")
    if shard_bytes is not None and shard_bytes < 1:
        raise StoreError(f"{path}: expected a shard size of at least 1 byte, got {shard_bytes}")
    return target


def _inodes(files: Sequence[str]) -> list[tuple[str, tuple[int, int] | None]]:
    """Return which files these are at the moment; None for a missing one."""
    found: list[tuple[str, tuple[int, int] | None]] = []
    for file in files:
        try:
            status = Path(file).stat()
            found.append((file, (status.st_dev, status.st_ino)))
        except OSError:
            found.append((file, None))
    return found


def _open_shards(files: Sequence[str], form: Format, way: _Way) -> list[Shard]:
    if len(files) == 1 or is_local(files[0]):
        return [_open_shard(file, form, way) for file in files]
    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="fastio") as threads:
        return list(threads.map(lambda file: _open_shard(file, form, way), files))


def _open_shard(path: str, form: Format, way: _Way) -> Shard:
    attempt = partial(_open_shard_once, path, form, way)
    return attempt() if is_local(path) else _twice(attempt, way.remote)


def _open_shard_once(path: str, form: Format, way: _Way) -> Shard:
    file = open_file(path, way.read, way.remote)
    try:
        if way.stage is not None:
            way.stage.use_for_shard(file, form)
        return _read_or_scan(file, form)
    finally:
        file.release()


def _read_or_scan(file: ByteSource, form: Format) -> Shard:
    try:
        return read_shard(file, format_name=form.name, seal_at=form.seal_at)
    except StoreIncomplete as exc:
        if form.foreign is None:
            _refuse_other_content(file, form, exc)
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
