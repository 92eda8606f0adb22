"""Seals sets: writes the set object that makes a set of shards."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.files import Read
from fastio.store.files.late import most_open
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.formats.format import Format
from fastio.store.index.seal import Seal, read_seal
from fastio.store.index.sealed import Shard, read_shard
from fastio.store.scratch import ScratchFolder
from fastio.store.sets.set_object import SetMember, SetObject, check_keys, current_set, read_set, write_set
from fastio.store.store_folder import StoreFolder, other_version
from fastio.store.write.atomic import PartialFile, exists, publish_file, sync_folder, writing
from fastio.store.write.locks import turns
from fastio.types.lazy_sequence import LazySequence

__all__ = [
    "SealedShards",
    "ShardFiles",
    "read_member",
    "seal_set",
    "sealed_member",
]


def read_member(folder: StoreFolder, name: str, form: Format, read: Read = "auto") -> tuple[Shard, SetMember]:
    """Open a shard that was sealed alone, and return how a set lists it. Raises StoreIncomplete and StoreCorrupt."""
    file = folder.open(name, read)
    shard = read_shard(file, format_name=form.name, seal_at=form.seal_at)
    file.release()
    assert shard.seal is not None
    return shard, sealed_member(name, shard.seal)


def sealed_member(name: str, seal: Seal) -> SetMember:
    """Return how a set lists a shard that has this seal."""
    return SetMember(name, seal.count, seal.file_size, seal.file_crc, seal.plan)


class ShardFiles:
    """
    The files of ``folder`` that are shards, each sealed alone, opened when somebody looks at them.

    Of a folder on a disk, those that were looked at first stay open, as many as a process may map; very many more are
    opened anew each time. Methods raise StoreIncomplete and StoreCorrupt for a file that is no whole shard.
    """

    def __init__(self, folder: StoreFolder, form: Format) -> None:
        self.folder, self.format = folder, form
        self._open: dict[str, tuple[Shard, SetMember]] = {}
        self._most = most_open("map")

    def read(self, name: str) -> tuple[Shard, SetMember]:
        """Return the shard that has this name now, and how a set lists it."""
        stays = name in self._open or len(self._open) < self._most or not is_local(self.folder.path)
        # Others are copied: whoever writes the arrays holds some of very many shards, and with them their mappings.
        opened = read_member(self.folder, name, self.format, "auto" if stays else "pread")
        if stays:
            self._open[name] = opened
        return opened

    def shard(self, expected: SetMember) -> Shard:
        """Return the shard that is listed so. Raises StoreError if another one has its name by now."""
        shard, member = self._open.get(expected.name) or self.read(expected.name)
        if member != expected:
            raise other_version(shard.path)
        return shard


class SealedShards(LazySequence[Shard]):
    """Shards that were sealed alone, in the order of ``members``, which is how a set lists them."""

    def __init__(self, files: ShardFiles, members: Sequence[SetMember]) -> None:
        self.members = members
        self._files = files

    @classmethod
    def named(cls, folder: StoreFolder, names: Iterable[str], form: Format) -> Self:
        """Look at the shards that have these names. Raises StoreIncomplete and StoreCorrupt."""
        files = ShardFiles(folder, form)
        return cls(files, [files.read(name)[1] for name in names])

    def __len__(self) -> int:
        return len(self.members)

    def item(self, number: int) -> Shard:
        """See LazySequence. Raises StoreError if it is no longer the same."""
        return self._files.shard(self.members[number])


def seal_set(  # noqa: PLR0913 - what is sealed, and what it follows
    path: str,
    names: Sequence[str],
    form: Format,
    *,
    metadata: bytes,
    generation: int = 1,
    replace: bool = False,
    options: Remote = DEFAULT,
    opened: tuple[Sequence[Shard], Sequence[SetMember]] | None = None,
    merged: Sequence[SetObject] = (),
) -> SetObject:
    """
    Write the set object ``path`` for these shards, in this order: from then on they are a set.

    ``opened`` are the shards and how the set lists them, if they are open already. With ``replace`` the set object
    that is there must be of the generation before; without it there must be none. One that is the same byte for byte,
    which another process wrote at the same time, is fine. ``merged`` are sets of this machine whose shards these are,
    which must list them still. Raises StoreIncomplete if a shard is not whole, SchemaError if a key comes twice or the
    schemas differ, and StoreError if another set object is in the way, or a shard is no longer the one that was opened.
    """
    folder, name = folder_of(path, options)
    if opened is None:
        own = SealedShards.named(folder, names, form)
        opened = own, own.members
    shards, members = opened
    if not members:
        raise StoreIncomplete(f"{path}: there are no shards to seal: pack first")
    with writing(path):
        runs = check_keys(path, shards)
    if is_local(path):
        file = PartialFile(path)
        try:
            write_set(file, shards, members, form=form.name, generation=generation, metadata=metadata, runs=runs)
            with writing(path):
                sync_folder(Path(path).parent)  # the shards have their names for good before they are a set
                _publish(file, members, form, generation=generation, replace=replace, merged=merged)
        finally:
            file.discard()
    else:
        with ScratchFolder() as scratch:
            file = PartialFile(str(scratch.file(name)))
            write_set(file, shards, members, form=form.name, generation=generation, metadata=metadata, runs=runs)
            publish_file(file, replace=False)
            _upload(folder, name, Path(file.path), generation=generation, replace=replace)
    return read_set(folder.open(name))


def _publish(
    file: PartialFile,
    members: Sequence[SetMember],
    form: Format,
    *,
    generation: int,
    replace: bool,
    merged: Sequence[SetObject],
) -> None:
    """Give a set object its name unless it is there already. Raises StoreError if another is in the way, or OSError."""
    file.flush()
    folder, name = folder_of(file.path)
    # Whoever replaces a set of this folder keeps shards that another one lists, if it is there by then.
    beside = [each.path for each in merged if Path(each.path).parent.resolve() == Path(file.path).parent.resolve()]
    with turns([file.path, *beside]):
        if Path(file.path).exists() and filecmp.cmp(file.partial, file.path, shallow=False):
            return
        _check_next(folder, name, generation=generation, replace=replace)
        for each in merged:
            _check_listed(each)
        for member in members:
            _check_member(folder.full(member.name), member, form)
        publish_file(file, replace=replace)


def _check_listed(merged: SetObject) -> None:
    """Raise StoreError if a set is no longer the one that was read."""
    current = current_set(merged.path)
    if current is None or (current.generation, current.members) != (merged.generation, merged.members):
        raise other_version(merged.path)


def _check_member(path: str, member: SetMember, form: Format) -> None:
    """Raise StoreError if a shard of this machine is, by its seal, no longer the one that a set is to list."""
    if not is_local(path) or member.file_crc == 0:  # a foreign file has no seal
        return
    seal = read_seal(path, form.seal_at)
    if seal is None or sealed_member(member.name, seal) != member:
        raise other_version(path)


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
