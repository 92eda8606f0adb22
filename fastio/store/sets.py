"""Sets of shards: their names, sealing them with a set object, and opening them by it."""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.atomic import PartialFile, exists, sync_folder, writing
from fastio.store.files import ByteSource, Read, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.folders import StoreFolder, folder_of
from fastio.store.format import Format
from fastio.store.formats import FORMATS
from fastio.store.members import MemberShards
from fastio.store.publish import publish_file
from fastio.store.scratch import ScratchFolder
from fastio.store.seal import Seal, find_seal
from fastio.store.sealed import Shard, bytes_from, read_shard
from fastio.store.set_object import SET_SUFFIX, SetMember, SetObject, read_set, write_set
from fastio.store.turns import turn
from fastio.store.unique_keys import check_keys
from fastio.types.units import counted

__all__ = ["listed_name", "open_members", "read_member", "seal_set", "set_path"]

_REPAIR = "copy it again, or make it anew: fastio repair SET --against SOURCE"
_NUMBER = re.compile(r"[-._]?(?:%(?:0\d+)?d|\{\d+\.\.\d+\}|\*)")


def set_path(path: str) -> str:
    """
    Return the path of the set object for shards named by a pattern; a set object's own path stays.

    >>> set_path("s3://bucket/in-%06d.tar"), set_path("data/%06d.tar"), set_path("in.fastio-set")
    ('s3://bucket/in.fastio-set', 'data/shards.fastio-set', 'in.fastio-set')
    """
    if path.endswith(SET_SUFFIX):
        return path
    folder, slash, name = path.rpartition("/")
    stem = _NUMBER.sub("", name, count=1).rpartition(".")[0]
    return f"{folder}{slash}{stem or 'shards'}{SET_SUFFIX}"


def listed_name(path: str, out: str) -> str:
    """Return how the set ``out`` lists the shard at this path or URL: by name in its own folder, else by all of it."""
    folder, _, name = path.rpartition("/")
    out_folder = out.rpartition("/")[0]
    if not is_local(path):
        return name if folder == out_folder else path
    if not is_local(out):
        raise StoreError(f"{path}: lies on this machine, where nobody who reads {out} finds it: copy the shards first")
    if os.path.realpath(folder or ".") == os.path.realpath(out_folder or "."):
        return name
    return os.path.abspath(path)  # noqa: PTH100 - a link stays one


def read_member(folder: StoreFolder, name: str, form: Format) -> tuple[Shard, SetMember]:
    """Open a shard that was sealed alone, and return how a set lists it. Raises StoreIncomplete and StoreCorrupt."""
    file = folder.open(name)
    shard = read_shard(file, format_name=form.name, seal_at=form.seal_at)
    file.release()
    seal = shard.seal
    assert seal is not None
    return shard, SetMember(name, seal.count, seal.file_size, seal.file_crc, seal.plan)


def seal_set(
    path: str,
    names: Sequence[str],
    form: Format,
    *,
    metadata: bytes,
    generation: int = 1,
    replace: bool = False,
    options: RemoteOptions = DEFAULT,
    opened: Sequence[tuple[Shard, SetMember]] | None = None,
) -> SetObject:
    """
    Write the set object ``path`` for these shards, in this order: from then on they are a set.

    ``opened`` are the shards as ``read_member`` returns them, if they are open already. With ``replace`` the set object
    that is there must be of the generation before; without it there must be none. One that is the same byte for byte,
    which another process wrote at the same time, is fine. Raises StoreIncomplete if a shard is not whole, SchemaError
    if a key comes twice or the schemas differ, and StoreError if another set object is in the way.
    """
    folder, name = folder_of(path, options)
    opened = [read_member(folder, each, form) for each in names] if opened is None else opened
    if not opened:
        raise StoreIncomplete(f"{path}: there are no shards to seal: pack first")
    shards, members = [shard for shard, _ in opened], [member for _, member in opened]
    check_keys(path, shards)
    if is_local(path):
        file = PartialFile(path)
        try:
            write_set(file, shards, members, form=form.name, generation=generation, metadata=metadata)
            with writing(path):
                sync_folder(Path(path).parent)  # the shards have their names for good before they are a set
                _publish(file, generation=generation, replace=replace)
        finally:
            file.discard()
    else:
        with ScratchFolder() as scratch:
            file = PartialFile(str(scratch.file(name)))
            write_set(file, shards, members, form=form.name, generation=generation, metadata=metadata)
            publish_file(file, replace=False)
            _upload(folder, name, Path(file.path), generation=generation, replace=replace)
    return read_set(folder.open(name))


def open_members(set_object: SetObject, *, read: Read = "auto", options: RemoteOptions = DEFAULT) -> MemberShards:
    """
    Return the shards of a set over its files. Raises StoreIncomplete for a missing shard, and one that is another
    than listed.

    Of files of this machine, size and seal are compared; what lies behind URLs is not looked at before it is read.
    """
    folder, _ = folder_of(set_object.path, options)
    form = FORMATS.get(set_object.format)
    if form is None:
        raise StoreError(f"{set_object.path}: a set of {set_object.format!r} shards, a format that this fastio lacks")
    sources: list[ByteSource] = []
    seals: list[Seal | None] = []
    for member in set_object.members:
        path = folder.full(member.name)
        if is_local(path):
            file = _opened(path, set_object, member, read)
            seals.append(_checked_seal(file, set_object, member, form))
            file.release()
        else:
            content = f"crc:{member.file_crc:08x}" if member.file_crc else ""
            file = RemoteSource.known(path, options, size=member.size, content=content)
            seals.append(None)
        sources.append(file)
    return MemberShards(set_object, sources, seals)


def _opened(path: str, set_object: SetObject, member: SetMember, read: Read) -> ByteSource:
    try:
        return open_file(path, read)
    except StoreNotFound as exc:
        raise StoreIncomplete(
            f"{path}: is missing; the set {set_object.path} lists it with {counted(member.count, 'sample')}, "
            f"{member.size} bytes: {_REPAIR}"
        ) from exc


def _checked_seal(file: ByteSource, set_object: SetObject, member: SetMember, form: Format) -> Seal | None:
    """Return the seal of a shard; None for a foreign file. Raises StoreIncomplete unless it is the one listed."""
    if file.size != member.size:
        raise StoreIncomplete(
            f"{file.path}: expected {member.size} bytes, as the set {set_object.path} lists it, got {file.size}: "
            f"{_REPAIR}"
        )
    if member.file_crc == 0:
        return None
    seal = find_seal(file.path, file.size, partial(bytes_from, file), form.seal_at)
    if (seal.file_crc, seal.count) != (member.file_crc, member.count):
        raise StoreIncomplete(
            f"{file.path}: is another shard than the set {set_object.path} lists: expected the CRC-32 "
            f"{member.file_crc:08x} in its seal, got {seal.file_crc:08x}: {_REPAIR}"
        )
    return seal


def _publish(file: PartialFile, *, generation: int, replace: bool) -> None:
    """Give a set object its name unless it is there already. Raises StoreError if another is in the way, or OSError."""
    file.flush()
    folder, name = folder_of(file.path)
    with turn(file.path):
        if Path(file.path).exists() and filecmp.cmp(file.partial, file.path, shallow=False):
            return
        _check_next(folder, name, generation=generation, replace=replace)
        publish_file(file, replace=replace)


def _upload(folder: StoreFolder, name: str, file: Path, *, generation: int, replace: bool) -> None:
    """As ``_publish``, by conditions on the version that was looked at."""
    etag = folder.etag(name) if replace else None
    if etag is None:
        folder.put(name, file)
        return
    if folder.open(name).size != file.stat().st_size or not _is_same(folder, name, file):
        _check_next(folder, name, generation=generation, replace=True)
        folder.put(name, file, etag=etag)


def _is_same(folder: StoreFolder, name: str, file: Path) -> bool:
    there = folder.open(name)
    return there.read(0, there.size).tobytes() == file.read_bytes()


def _check_next(folder: StoreFolder, name: str, *, generation: int, replace: bool) -> None:
    """Raise StoreError unless this generation may follow what is there; a damaged set object may be replaced."""
    path = folder.full(name)
    try:
        known = read_set(folder.open(name), with_index=False)
    except StoreNotFound:
        return
    except (StoreCorrupt, StoreIncomplete):
        if not replace:
            raise
        return
    if not replace:
        raise exists(path)
    if known.generation != generation - 1:
        raise StoreError(
            f"{path}: expected generation {generation - 1} of this set, got {known.generation}: another process has "
            "replaced it meanwhile; look what it holds, then run this again"
        )
