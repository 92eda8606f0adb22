"""
``fastio index``: adds what is missing for fast reading to data that stay where they are, unchanged.

A packed store gets start points within its pictures: a single file in a sidecar (``added_points``), a set in its next
set object. Tar shards of other tools get a set object with all of their index (``foreign_index``), or start points in
the index that is kept beside them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.added_points import ELSEWHERE, with_points, write_added
from fastio.store.atomic import PartialFile, exists, writing
from fastio.store.files import open_file
from fastio.store.files.local import check_folder_here, is_local
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.foreign_index import IndexReport, index_foreign, report_of
from fastio.store.foreign_sidecar import write_sidecar
from fastio.store.formats import FORMATS
from fastio.store.index import SealedStore
from fastio.store.opening import open_store
from fastio.store.publish import publish_file
from fastio.store.seal import read_seal
from fastio.store.sealed import Shard
from fastio.store.set_lookup import set_of_path
from fastio.store.set_names import SET_SUFFIX, listed_name, set_path
from fastio.store.set_object import SetMember, write_set
from fastio.store.sets import seal_set
from fastio.store.target import expand, match_format
from fastio.store.turns import claimed
from fastio.store.verify import verify_own_file

__all__ = ["index_store"]

Progress = Callable[[int, int], object]  # called with the pictures that are done, and how many there are


def index_store(
    path: str,
    folder: str | None = None,
    *,
    options: RemoteOptions = DEFAULT,
    overwrite: bool = False,
    jump: bool = True,
    progress: Progress = lambda done, total: None,
) -> IndexReport:
    """
    Index what ``path`` names: a store, tar shards of other tools, a pattern, a range, or a folder.

    Without ``folder``, a store or shards of this machine get start points (see ``begin_jump_tables``) beside them. With
    it, ``folder/name.fastio-set`` lists the files where they lie, with all of their index and, with ``jump``, start
    points: for folders that cannot be written, and for shards behind URLs. JPEGs that are found to be damaged stay as
    they are. ``progress`` is told of the start points of stores and of files of this machine.

    Raises StoreError if there is nothing that this could add, the name is taken and not to be replaced, or something
    cannot be read or written, and StoreCorrupt for a value that differs from its checksum.
    """
    is_packed = _is_packed(path)
    if folder is not None and not is_packed:
        return index_foreign(path, folder, options=options, overwrite=overwrite, jump=jump)
    if not jump:
        raise StoreError(f"{path}: without start points (--no-jump) there is nothing to add to it")
    if folder is None and not is_local(path):
        raise StoreError(f"{path}: nothing can be kept beside it: name a folder of this machine for it (--to DIR)")
    if not is_packed:
        return _index_beside(path, progress)
    with ExitStack() as held:
        set_object = set_of_path(path) if folder is None else None
        if set_object is not None:
            try:
                held.enter_context(claimed(set_object))
            except StoreError as exc:
                exc.add_note(ELSEWHERE)
                raise
        store = held.enter_context(open_store(path, remote=options))
        shards = [_without_damage(shard) for shard in store.shards]
        done, report = _noted(path, shards, progress)
        if folder is None and report.start_points == report_of(path, shards, ()).start_points:
            return report  # nothing was missing
        return replace(report, path=_written(store, done, folder, options=options, overwrite=overwrite))


def _without_damage(shard: Shard) -> Shard:
    """Return a shard without start points if the sidecar that they are from is damaged: all are made anew."""
    if shard.points_file is None or not verify_own_file(shard.points_file):
        return shard
    return replace(shard, intervals={}, points_file=None)


def _noted(path: str, shards: Sequence[Shard], progress: Progress) -> tuple[list[Shard], IndexReport]:
    """Add start points to shards. Raises StoreError if they hold no encoded pictures."""
    fields = sum(field.traits.is_image for field in shards[0].schema.payload)
    if not fields:
        raise StoreError(f"{path}: holds no encoded pictures, so there is nothing to add")
    done, damaged, read, total = list[Shard](), list[str](), 0, fields * sum(shard.count for shard in shards)

    def count(pictures: int) -> None:
        nonlocal read
        read += pictures
        progress(read, total)

    for shard in shards:
        noted, bad = with_points(shard, count)
        done.append(noted)
        damaged += bad
    return done, report_of(path, done, damaged)


def _index_beside(path: str, progress: Progress) -> IndexReport:
    """Add start points to the index that is kept beside each tar file of other tools."""
    form = match_format(path)
    assert form.foreign is not None, "looked at"
    files = [open_file(file) for file in expand(path, form)]
    done, report = _noted(path, [form.foreign.open(file) for file in files], progress)
    kept = [write_sidecar(shard, shard.data) for shard in done]
    return replace(report, path=kept[0] if len(kept) == 1 else path)


def _is_packed(path: str) -> bool:
    """Whether a path names a store that fastio packed: behind a URL, a set by its set object."""
    if path.endswith(SET_SUFFIX):
        return True
    if not is_local(path):
        return False
    if set_of_path(path) is not None:
        return True
    form = match_format(path)
    return form.foreign is None or read_seal(expand(path, form)[0], form.seal_at) is not None


def _written(
    store: SealedStore, shards: Sequence[Shard], folder: str | None, *, options: RemoteOptions, overwrite: bool
) -> str:
    """Keep the start points of a store's shards; return where."""
    if folder is not None:
        return _listed(store, shards, folder, overwrite=overwrite)
    if store.set_object is not None:
        current = store.set_object
        seal_set(
            current.path,
            [member.name for member in current.members],
            FORMATS[current.format],
            metadata=current.metadata,
            generation=current.generation + 1,
            replace=True,
            options=options,
            opened=list(zip(shards, current.members, strict=True)),
        )
        return current.path
    written = [write_added(shard) for shard in shards if shard.intervals]
    return written[0] if len(written) == 1 else store.path


def _listed(store: SealedStore, shards: Sequence[Shard], folder: str, *, overwrite: bool) -> str:
    """Write a set object in another folder that lists a store's files where they lie; return its path."""
    check_folder_here(folder)
    path = store.path if store.set_object is None else store.set_object.path
    if Path(path).is_dir():
        path = f"{path.rstrip('/')}.{store.format}"
    target = os.path.join(folder, Path(set_path(path)).name)  # noqa: PTH118 - keeps "./"
    if os.path.lexists(target) and not overwrite:
        raise exists(target)
    with writing(target):
        Path(folder).mkdir(parents=True, exist_ok=True)
    if store.set_object is not None:
        members, metadata = list(store.set_object.members), store.set_object.metadata
    else:
        seals = [shard.seal for shard in shards if shard.seal is not None]
        members = [SetMember("", seal.count, seal.file_size, seal.file_crc, seal.plan) for seal in seals]
        metadata = shards[0].metadata
    names = [listed_name(shard.path, target) for shard in shards]
    members = [replace(member, name=name) for member, name in zip(members, names, strict=True)]
    output = PartialFile(target)
    try:
        write_set(output, shards, members, form=store.format, generation=1, metadata=metadata)
        publish_file(output, replace=overwrite)
    finally:
        output.discard()
    return target
