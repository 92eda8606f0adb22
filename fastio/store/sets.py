"""Sets of shards: their names, sealing them with a set object, and opening them by it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fastio.errors import StoreIncomplete
from fastio.store.atomic import PartialFile
from fastio.store.files import ByteSource, Read
from fastio.store.files.local import is_local
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.folders import StoreFolder, folder_of
from fastio.store.format import Format
from fastio.store.publish import publish_file
from fastio.store.sealed import Shard, read_shard
from fastio.store.set_object import SET_SUFFIX, SetMember, SetObject, read_set, write_set

__all__ = ["open_members", "read_member", "seal_set", "set_path"]

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
) -> SetObject:
    """
    Write the set object ``path`` for these shards, in this order: from then on they are a set.

    Raises StoreIncomplete if a shard is not whole, and StoreError if the name is taken and not to be replaced.
    """
    folder, name = folder_of(path, options)
    opened = [read_member(folder, each, form) for each in names]
    if not opened:
        raise StoreIncomplete(f"{path}: there are no shards to seal: pack first")
    shards, members = [shard for shard, _ in opened], [member for _, member in opened]
    if is_local(path):
        file = PartialFile(path)
        try:
            write_set(file, shards, members, form=form.name, generation=generation, metadata=metadata)
            publish_file(file, replace=replace)
        finally:
            file.discard()
    else:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="fastio-") as scratch:
            file = PartialFile(str(Path(scratch) / name))
            write_set(file, shards, members, form=form.name, generation=generation, metadata=metadata)
            publish_file(file, replace=False)
            folder.put(name, Path(scratch) / name, replace=replace)
    return read_set(folder.open(name))


def open_members(found: SetObject, *, read: Read = "auto", options: RemoteOptions = DEFAULT) -> list[Shard]:
    """Return the shards of a set over its files. Raises StoreNotFound or StoreError for one that is not as listed."""
    folder, _ = folder_of(found.path, options)

    def open_member(member: SetMember) -> ByteSource:
        path = folder.full(member.name)
        if not is_local(path):
            return RemoteSource.known(path, options, size=member.size)
        file = folder.open(member.name, read)
        if file.size != member.size:
            raise StoreIncomplete(
                f"{path}: expected {member.size} bytes, got {file.size}; its set {found.path} lists another file: "
                "copy or pack again"
            )
        return file

    return found.shards(open_member)
