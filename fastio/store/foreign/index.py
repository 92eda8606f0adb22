"""
``fastio index``: adds what is missing for fast reading to data that stay where they are, unchanged.

A packed store gets start points within its pictures: a single file in a sidecar, a set in its next set object. Tar
shards of other tools get a set object with all of their index, or start points in the index that is kept beside them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.address import Address
from fastio.store.files import ByteSource, open_file
from fastio.store.files.local import check_folder_here, is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.foreign.behind_url import index_containers
from fastio.store.foreign.folder import SETTLED_NS, count_files, keep_content, open_kept, tell_skipped, with_content
from fastio.store.foreign.sidecar import write_sidecar
from fastio.store.foreign.tar import check_foreign_set, scan_foreign
from fastio.store.formats import FORMATS, named, names_store
from fastio.store.index.seal import find_seal, read_seal
from fastio.store.index.sealed import Shard, bytes_from
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_own_file
from fastio.store.jump_tables import ELSEWHERE, with_points, write_added
from fastio.store.kinds.names import is_there
from fastio.store.kinds.registry import later
from fastio.store.kinds.unknown import is_container_of_others
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.opening import open_store
from fastio.store.opening_files import list_again
from fastio.store.sets.names import SET_SUFFIX, listed_name, set_path
from fastio.store.sets.seal import seal_set
from fastio.store.sets.set_object import SetMember, write_set
from fastio.store.write.atomic import PartialFile, exists, publish_file, pwrite_all, writing
from fastio.store.write.locks import claimed

__all__ = [
    "IndexReport",
    "copy_source",
    "index_foreign",
    "index_store",
]


_look_at = later("fastio.converters.pictures.probe:look_at")  # which knows what is wrong with pictures, in words

Progress = Callable[[int, int], object]  # called with the pictures that are done, and how many there are


def index_store(
    path: str,
    folder: str | None = None,
    *,
    options: Remote = DEFAULT,
    overwrite: bool = False,
    jump: bool = True,
    progress: Progress = lambda done, total: None,
    unpacked: Unpacked = AS_IT_IS,
) -> IndexReport:
    """
    Index what ``path`` names: a store, tar shards of other tools, a pattern, a range, or a folder; ``unpacked`` says
    what it is if it is not packed.

    Without ``folder``, a store or shards of this machine get start points (see ``begin_jump_tables``) beside them. With
    it, ``folder/name.fastio-set`` lists the files where they lie, with all of their index and, with ``jump``, start
    points: for folders that cannot be written, and for shards behind URLs. Files in place get checksums and sizes of
    pictures, too, and without ``jump`` these alone; samples that differ from a checksum of their container are left
    out. JPEGs that are found to be damaged stay as they are. ``progress`` is told of the start points of stores and of
    files of this machine.

    Raises StoreError if there is nothing that this could add, the name is taken and not to be replaced, or something
    cannot be read or written, and StoreCorrupt for a value that differs from its checksum.
    """
    is_here = folder is None and is_local(path) and is_there(path)
    if is_here and (not names_store(path) or is_container_of_others(path)):
        return _index_files(path, unpacked, jump=jump, progress=progress)
    if folder is None and not is_local(path) and named(path) is None:
        made = index_containers(path, options, unpacked, jump=jump)
        if made is not None:
            place, listed, bad = made
            return replace(report_of(path, listed, [*bad]), path=place, problems=bad, files=len(listed))
    if unpacked != AS_IT_IS:
        raise StoreError(f"{path}: is packed, and says itself what is in it: drop {' '.join(unpacked.words())}")
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
        set_object = Address.parse(path).set_object() if folder is None else None
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


def _index_files(path: str, unpacked: Unpacked, *, jump: bool, progress: Progress) -> IndexReport:
    """
    Add to the index of files in place what reading them tells: checksums, sizes of pictures, start points.

    What was changed a moment ago is waited for, since no index of it is kept.
    """
    shard = list_again(path, unpacked)
    if open_kept(path, unpacked) is None:
        time.sleep(SETTLED_NS / 1e9)
        shard = list_again(path, unpacked)
    tell_skipped(shard.path, shard.count, shard.metadata)
    shard, bad = with_content(shard, partial(_look_at, reads_codes=jump))
    problems = {shard.key(i): words for i, words in sorted(bad.items())}
    if jump and any(each.traits.is_image for each in shard.schema.payload):
        (shard,), report = _noted(path, [shard], progress)
        problems = {**dict.fromkeys(report.damaged, "has damaged data"), **problems}
    report = report_of(path, [shard], [*problems])
    return replace(report, path=keep_content(shard, unpacked), problems=problems, files=count_files(shard))


def _without_damage(shard: Shard) -> Shard:
    """Return a shard without start points if the sidecar that they are from is damaged: all are made anew."""
    if shard.points_file is None or not verify_own_file(shard.points_file):
        return shard
    return replace(shard, intervals={}, points_file=None)


def _noted(path: str, shards: Sequence[Shard], progress: Progress) -> tuple[list[Shard], IndexReport]:
    """Add start points to shards. Raises StoreError if they hold no encoded pictures."""
    fields = sum(each.traits.is_image for each in shards[0].schema.payload)
    if not fields:
        listed = any(each.element.traits.is_image for each in shards[0].schema.lists)
        what = "pictures in lists alone, whose start points are made when they are packed" if listed else ""
        raise StoreError(f"{path}: holds {what or 'no encoded pictures'}, so there is nothing to add")
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
    form, paths = Address.parse(path).files()
    assert form.foreign is not None, "looked at"
    files = [open_file(file) for file in paths]
    done, report = _noted(path, [form.foreign.open(file) for file in files], progress)
    kept = [write_sidecar(shard, shard.data) for shard in done]
    return replace(report, path=kept[0] if len(kept) == 1 else path)


def _is_packed(path: str) -> bool:
    """Whether a path names a store that fastio packed: behind a URL, a set by its set object."""
    if path.endswith(SET_SUFFIX):
        return True
    if not is_local(path):
        return False
    address = Address.parse(path)
    if address.set_object() is not None:
        return True
    form, files = address.files()
    return form.foreign is None or read_seal(files[0], form.seal_at) is not None


def _written(
    store: SealedStore, shards: Sequence[Shard], folder: str | None, *, options: Remote, overwrite: bool
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
            opened=(shards, current.members),
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


# Indexes tar shards that other tools wrote, by one pass over their bytes: a set object that lists them where they lie.
#
# Behind a URL, the headers of a tar lie where only requests find them, one a member. So each shard is copied to a file
# without a name, scanned there like a local one, and every value gets its CRC-32: what the shards hold later is
# compared with it, as that of shards that fastio wrote.

_BLOCK_BYTES = 16 << 20  # of a shard in one request
_AT_ONCE = 4
_TAR = "tar"


@dataclass(frozen=True, slots=True)
class IndexReport:
    """
    The set object or sidecar that was written (or what was indexed: several sidecars, or nothing to write), and what it
    is about.

    ``start_points`` counts pictures with places to start within them, ``damaged`` are the keys of damaged JPEGs. Of
    ``files`` in place, they are those of all damaged pictures, and of what is no picture; ``problems`` says by key what
    is wrong.
    """

    path: str
    samples: int
    shards: int
    size_bytes: int
    start_points: int = 0
    damaged: Sequence[str] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    files: int = 0


def report_of(path: str, shards: Sequence[Shard], damaged: Sequence[str]) -> IndexReport:
    """Return the report of shards that were indexed."""
    return IndexReport(
        path=path,
        samples=sum(shard.count for shard in shards),
        shards=len(shards),
        size_bytes=sum(int(shard.data.identity["size"]) for shard in shards),
        start_points=sum(int(np.count_nonzero(each.counts)) for shard in shards for each in shard.intervals.values()),
        damaged=damaged,
    )


def index_foreign(
    path: str,
    folder: str,
    *,
    options: Remote = DEFAULT,
    overwrite: bool = False,
    jump: bool = True,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> IndexReport:
    """
    Write ``folder/name.fastio-set`` for the tar shards that ``path`` names: a file, a pattern, a range, or a folder.

    The index keeps where MCUs of JPEGs begin (see ``begin_jump_tables``), unless ``jump=False``; damaged ones stay as
    they are. ``progress`` is told the bytes of each shard that is done. Raises StoreError for shards that are not tar
    files, have different fields, or were packed by fastio, and if the name is taken and not to be replaced.
    """
    check_folder_here(folder)
    files = _files(path, options)
    name = os.path.basename(set_path(path if path.endswith(f".{_TAR}") else f"{path.rstrip('/')}.{_TAR}"))  # noqa: PTH119 - of a URL too
    target = os.path.join(folder, name)  # noqa: PTH118 - keeps "./"
    if os.path.lexists(target) and not overwrite:
        raise exists(target)
    shards, damaged = list[Shard](), list[str]()
    for file in files:
        shard, bad = _indexed(open_file(file, options=options), jump=jump)
        shards.append(shard)
        damaged += bad
        progress(shard.data.size)
    shards = check_foreign_set(path, shards)
    members = [SetMember(listed_name(shard.path, target), shard.count, shard.data.size, 0) for shard in shards]
    with writing(target):
        Path(folder).mkdir(parents=True, exist_ok=True)
    output = PartialFile(target)
    try:
        write_set(output, shards, members, form=_TAR, generation=1, metadata=shards[0].metadata)
        publish_file(output, replace=overwrite)
    finally:
        output.discard()
    return report_of(target, shards, damaged)


def _files(path: str, options: Remote) -> list[str]:
    """Return the shards by absolute names."""
    if path.endswith(SET_SUFFIX):
        raise StoreError(f"{path}: is a set object, which has an index: open it as it is")
    form, files = Address.parse(path, options).files()
    if form is not FORMATS[_TAR]:
        raise StoreError(f"{path}: expected tar files, got {form.name}: fastio reads those only if it packed them")
    return [os.path.abspath(file) for file in files] if is_local(path) else files  # noqa: PTH100 - as the user named it


def _indexed(source: ByteSource, *, jump: bool) -> tuple[Shard, list[str]]:
    """Return the index of a shard with the checksums of its values, over the source itself; keys of damaged JPEGs."""
    if _is_sealed(source):
        raise StoreError(f"{source.path}: was packed by fastio and has an index: open it, or its set, as it is")
    if is_local(source.path):
        shard = scan_foreign(source)
        return with_points(shard) if jump else (shard, [])
    with tempfile.NamedTemporaryFile(prefix="fastio-", suffix=".tar") as scratch:
        with writing(scratch.name):
            copy_source(source, scratch.fileno())
        shard, damaged = scan_foreign(open_file(scratch.name, "pread"), path=source.path), list[str]()
        if jump:
            shard, damaged = with_points(shard)
    source.release()
    return replace(shard, path=source.path, data=source), damaged


def _is_sealed(source: ByteSource) -> bool:
    try:
        find_seal(source.path, source.size, partial(bytes_from, source), FORMATS[_TAR].seal_at)
    except (StoreIncomplete, StoreCorrupt):
        return False
    return True


def copy_source(source: ByteSource, descriptor: int) -> None:
    """Copy all bytes of a file into an open one, some blocks at a time."""
    starts = iter(range(0, source.size, _BLOCK_BYTES))

    def copy(start: int) -> None:
        pwrite_all(descriptor, source.read(start, min(start + _BLOCK_BYTES, source.size)), start)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fastio-index") as threads:
        while batch := list(islice(starts, _AT_ONCE)):
            list(threads.map(copy, batch))
