"""
Indexes tar shards that other tools wrote, by one pass over their bytes: a set object that lists them where they lie.

Behind a URL, the headers of a tar lie where only requests find them, one a member. So each shard is copied to a file
without a name, scanned there like a local one, and every value gets its CRC-32: what the shards hold later is compared
with it, as that of shards that fastio wrote.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.added_points import with_points
from fastio.store.atomic import PartialFile, exists, writing
from fastio.store.files import ByteSource, open_file
from fastio.store.files.local import check_folder_here, is_local
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.foreign_tar import check_foreign_set, scan_foreign
from fastio.store.formats import FORMATS
from fastio.store.publish import publish_file
from fastio.store.seal import find_seal
from fastio.store.sealed import Shard, bytes_from
from fastio.store.set_names import SET_SUFFIX, listed_name, set_path
from fastio.store.set_object import SetMember, write_set
from fastio.store.target import expand
from fastio.store.urls import shards_of_url

__all__ = ["IndexReport", "index_foreign", "report_of"]

_BLOCK_BYTES = 16 << 20  # of a shard in one request
_AT_ONCE = 4
_TAR = "tar"


@dataclass(frozen=True, slots=True)
class IndexReport:
    """
    The set object or sidecar that was written (or what was indexed: several sidecars, or nothing to write), and what it
    is about.

    ``start_points`` counts pictures with places to start within them, ``damaged`` are the keys of damaged JPEGs.
    """

    path: str
    samples: int
    shards: int
    size_bytes: int
    start_points: int = 0
    damaged: Sequence[str] = ()


def report_of(path: str, shards: Sequence[Shard], damaged: Sequence[str]) -> IndexReport:
    """Return the report of shards that were indexed."""
    return IndexReport(
        path=path,
        samples=sum(shard.count for shard in shards),
        shards=len(shards),
        size_bytes=sum(shard.data.size for shard in shards),
        start_points=sum(int(np.count_nonzero(each.counts)) for shard in shards for each in shard.intervals.values()),
        damaged=damaged,
    )


def index_foreign(
    path: str,
    folder: str,
    *,
    options: RemoteOptions = DEFAULT,
    overwrite: bool = False,
    jump: bool = True,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> IndexReport:
    """
    Write ``folder/name.fastio-set`` for the tar shards that ``path`` names: a file, a pattern, a range, or a folder.

    The index keeps where MCUs of JPEGs begin (see ``begin_jump_tables``), unless ``jump=False``; damaged ones stay as
    they are.
    ``progress`` is told the bytes of each shard that is done. Raises StoreError for shards that are not tar files, have
    different fields, or were packed by fastio, and if the name is taken and not to be replaced.
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


def _files(path: str, options: RemoteOptions) -> list[str]:
    """Return the shards by absolute names."""
    form = FORMATS[_TAR]
    if path.endswith(SET_SUFFIX):
        raise StoreError(f"{path}: is a set object, which has an index: open it as it is")
    if is_local(path):
        return [os.path.abspath(file) for file in expand(path, form)]  # noqa: PTH100 - as the user named it
    found, files = shards_of_url(path, options)
    if found is not form:
        raise StoreError(f"{path}: expected tar files, got {found.name}: fastio reads those only if it packed them")
    return files


def _indexed(source: ByteSource, *, jump: bool) -> tuple[Shard, list[str]]:
    """Return the index of a shard with the checksums of its values, over the source itself; keys of damaged JPEGs."""
    if _is_sealed(source):
        raise StoreError(f"{source.path}: was packed by fastio and has an index: open it, or its set, as it is")
    if is_local(source.path):
        shard = scan_foreign(source)
        return with_points(shard) if jump else (shard, [])
    with tempfile.NamedTemporaryFile(prefix="fastio-", suffix=".tar") as scratch:
        with writing(scratch.name):
            _copy(source, scratch.fileno())
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


def _copy(source: ByteSource, descriptor: int) -> None:
    """Copy all bytes of a file into an open one, some blocks at a time."""
    starts = iter(range(0, source.size, _BLOCK_BYTES))

    def copy(start: int) -> None:
        block = source.read(start, min(start + _BLOCK_BYTES, source.size))
        if os.pwrite(descriptor, block.data, start) != len(block):
            raise OSError(28, os.strerror(28))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fastio-index") as threads:
        while batch := list(islice(starts, _AT_ONCE)):
            list(threads.map(copy, batch))
