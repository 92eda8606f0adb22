"""
``open_store``: opens a store of this machine; ``opening_urls`` opens those behind URLs, ``opening_files`` what is not
packed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fastio.errors import SchemaError, StoreError, StoreIncomplete
from fastio.store.address import Address
from fastio.store.beside.added import FIELDS_SUFFIX
from fastio.store.files import Read, check_read
from fastio.store.files.local import check_address, expanded, is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.formats import named, names_store
from fastio.store.formats.format import Format
from fastio.store.index.store import SealedStore
from fastio.store.kinds.names import is_there, plain_name
from fastio.store.kinds.scan import is_hidden, names_in
from fastio.store.kinds.unknown import is_container_of_others
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.shards import Way, open_set, open_shard, store_of
from fastio.types.options import explains_names
from fastio.types.picture_kinds import kind_by_name
from fastio.types.units import counted

__all__ = ["open_store"]

_ATTEMPTS = 10  # further attempts to open a set that others replace meanwhile

_LOOKED_AT = 1000  # names in a folder beside shards
_LOG = logging.getLogger(__name__)

_Version = tuple[str, tuple[int, int] | None]  # a path, with the device and inode of the file there


@explains_names()
def open_store(
    path: str | os.PathLike[str],
    *,
    read: Read = "auto",
    remote: Remote = DEFAULT,
    unpacked: Unpacked = AS_IT_IS,
    jump: bool = False,
) -> SealedStore:
    """
    Open a packed dataset; its suffix names the format in FORMATS.

    Shards are named by ``name-{000000..000009}.tar``, ``name-%06d.tar``, ``name-*.tar``, their folder or the set
    object beside them; all of these may be URLs, which ``remote`` says how to read. Tar files that others wrote open
    too: they are scanned once. So do folders and tables whose samples are files, and containers of other programs, or
    a pattern of these, that hold values as packing would give them: all stay where they lie; ``unpacked`` says what
    they do not tell themselves.
    A store behind a URL is copied to ``remote.stage`` while it is read.

    ``read`` says how bytes are read: "map" maps the files into memory, "pread" reads each run of bytes by a call of its
    own, "remote" asks a server for ranges; "auto" takes that for URLs, "pread" on network file systems, "map"
    elsewhere. Files of a folder are opened, read and closed one by one, unless they hold several samples each.

    With ``jump``, start points within JPEGs of such a folder are noted beside its index when they are first read, so
    that their crops decode faster from then on, unless ``fastio index`` has added some.

    Raises StoreNotFound where nothing lies, StoreIncomplete (no seal) or StoreCorrupt, and StoreError for a newer
    version, and for what is no store and cannot be read where it lies, such as a damaged container.
    """
    check_read(read)
    check_address(path)
    path = expanded(os.fspath(path))
    if not is_local(path):
        from fastio.store.opening_urls import open_url

        return open_url(path, read, remote, unpacked)
    opener = partial(open_store, read=read, remote=remote, unpacked=unpacked, jump=jump)
    way = Way(read, remote, opener, jump=jump)
    if named(path) is None or Path(path).is_dir():
        from fastio.store.opening_files import open_as_kept

        kept = open_as_kept(path, unpacked, way)
        if kept is not None:
            return kept
    for attempt in range(_ATTEMPTS + 1):
        before: list[_Version] = []
        try:
            address = Address.parse(path)
            set_object = address.set_object()
            if set_object is not None:
                before = _inodes([set_object])
                store = open_set(address, set_object, way)
            else:
                form, files = address.files()
                before = _inodes(files)
                store = store_of(path, form, [open_shard(file, form, way) for file in files], way)
                if address.is_folder:
                    _tell_beside(path, form)
        except StoreError as exc:
            if attempt < _ATTEMPTS and before != _versions(path):
                continue  # the store was replaced meanwhile
            is_named = names_store(path)
            if not os.path.lexists(path) and (is_named or not is_there(path)):
                raise
            if is_named and not (isinstance(exc, StoreIncomplete) and is_container_of_others(path)):
                raise
            from fastio.store.opening_files import open_as_kept, open_files

            kept = open_as_kept(path, unpacked, way) if is_named else None  # otherwise it was looked for before
            return kept or open_files(path, unpacked, way, exc)
        if unpacked != AS_IT_IS:
            store.close()
            raise SchemaError(
                f"{path}: is a store, of which {' '.join(unpacked.words())} (unpacked=) says nothing: leave it out; "
                "dataset.where(...) and indices= choose samples of a store"
            )
        return store
    raise AssertionError


def _tell_beside(path: str, form: Format) -> None:
    """Log which pictures, compressed shards and folders of samples, beside its shards, the store of a folder lacks."""
    beside = list(_beside(path, form))
    if beside:
        _LOG.warning(
            "%s: has the samples of its shards alone, not %s: name the shards, as in %s/*%s, if these are meant",
            path,
            ", ".join(beside),
            path.rstrip("/"),
            form.suffixes[0],
        )


def _beside(path: str, form: Format) -> Iterator[str]:
    def is_compressed(name: str) -> bool:
        return name.endswith(".tgz") or (name != plain_name(name) and form.is_name(plain_name(name)))

    folders, files = names_in(path)
    pictures, compressed = list(filter(kind_by_name, files)), list(filter(is_compressed, files))
    for names, what in ((pictures, "picture"), (compressed, "compressed file")):
        if names:
            yield f"{counted(len(names), what)} ({names[0]!r})"
    for folder in folders:
        if not is_hidden(folder) and not folder.endswith(FIELDS_SUFFIX):
            _, below = names_in(f"{path}/{folder}", _LOOKED_AT)
            if any(kind_by_name(name) or is_compressed(name) or form.is_name(name) for name in below):
                yield f"the samples in {folder!r}"
                return


def _versions(path: str) -> list[_Version]:
    """Return which files a path stands for at the moment, with their inodes; nothing for an impossible path."""
    try:
        address = Address.parse(path)
        set_object = address.set_object()
        return _inodes([set_object] if set_object is not None else address.files()[1])
    except StoreError:
        return []


def _inodes(files: Sequence[str]) -> list[_Version]:
    """Return which files these are at the moment; None for a missing one."""
    found: list[_Version] = []
    for file in files:
        try:
            status = Path(file).stat()
            found.append((file, (status.st_dev, status.st_ino)))
        except OSError:
            found.append((file, None))
    return found
