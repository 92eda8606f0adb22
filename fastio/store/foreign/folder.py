"""
Opens samples where they lie: a folder of pictures, a table and the files that it names, a container of another program,
or several that a pattern names.

What a path is, and which files are its samples, the kinds of sources say (see ``converters/sources/in_place.py``).
Their answer is kept as ``<path>.fastio-index`` beside the folder or table, or in the cache directory
(``$XDG_CACHE_HOME/fastio``, ``~/.cache/fastio``) where that cannot be written to. It is the sealed index of a store:
arrays of starts, sizes, columns and keys, the JSON header, the seal at the end; and beside these

    file.names, file.sizes, file.mtimes    the files: names from the folder on, each with a NUL behind it; bytes; ns
    file.kept                              values that lie in no file of their own, such as captions of a table
    watch.names, watch.stamps              folders that were listed, and files that were read for it, such as the
                                           table; (n, 3): size (-1 for a folder), mtime and, of files, ctime in ns

A value is some bytes of one of these files: all of them, what follows a header, or a piece of a container.

``fastio index`` reads all files once and adds checksums, sizes of pictures and start points within them.

An index is used while all that it watches is unchanged, and the options mean the same files, links followed: a file
that is added, removed or renamed changes the time of its folder. It is not kept where a time is so recent that a later
change could leave it as it is. A file that was written to in place is noticed when it is read, since its size and time
are compared then; the index then goes, and the next opening lists everything again. What changed since the last one is
logged in one line. What ``fastio index`` has added stays if the files and all that is said of them are the same; of
some files that are, the start points within them stay.

Files that were read for the index are compared by ctime, too, which nobody can set: a table that is written anew with
its size and time is read again, and so is one that was copied or whose rights were changed, which costs a listing.
Files of samples are not: after a ``chmod -R`` or a copy, none would be what was listed. One that is written anew with
its size and time is given as it is now, unless ``fastio index`` has noted its checksum, which tells.

The content is identified by keys, sizes and columns, not by times, which copies do not keep.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import crc32
from fastio.errors import StoreCorrupt, StoreError, StoreNotFound
from fastio.machine import available_cpus
from fastio.store.files import Read, files_of, open_file
from fastio.store.files.fetch import fetch_pieces
from fastio.store.files.listed import FileList, ListedFolder
from fastio.store.files.local import network_file_system
from fastio.store.files.mapped_folder import MappedFolder, are_few
from fastio.store.foreign.noted_points import NotedPoints, points_path
from fastio.store.foreign.sidecar import arrays_of, index_places, publish_sidecar
from fastio.store.index.arrays import Keys
from fastio.store.index.seal import SEAL_SIZE, IndexHeader, always_at, byte_view, find_seal
from fastio.store.index.sealed import Intervals, Shard, bytes_from, read_arrays, read_shard
from fastio.store.kinds.names import folders_of_pattern, is_pattern
from fastio.store.kinds.unpacked import Unpacked
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans
from fastio.types.units import counted

__all__ = [
    "SETTLED_NS",
    "FieldValues",
    "FolderContent",
    "count_files",
    "keep_content",
    "open_kept",
    "open_listed",
    "root_of",
    "tell_skipped",
    "with_content",
]

_FORMAT = "fils"
_RULES = 2  # by which files become samples; an index that was made by others is not used
_OWN = "in_place"  # of the metadata of an index, which that of the store lacks
_FOLDER_SIZE = -1
_TYPE_BITS = 0o170000  # of a mode: S_IFMT
SETTLED_NS = 2_000_000_000  # the coarsest times that file systems keep
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FieldValues:
    """
    The values of one payload field: of each sample some bytes of a file, or of ``kept``.

    ``names`` are those of the files from the folder on, ``file_sizes`` their bytes. Value i is ``sizes[i]`` bytes of
    the file ``numbers[i]`` (None: file i), from the byte ``skips[i]`` (None: 0) on. ``checksums`` (n,) are CRC-32s that
    the container has. Without names, ``sizes`` are those of values that lie one after the other in ``kept``.
    """

    sizes: NDArray[np.int64]
    names: Sequence[str] | None = None
    file_sizes: NDArray[np.int64] | None = None
    numbers: NDArray[np.int64] | None = None
    skips: NDArray[np.int64] | None = None
    checksums: NDArray[np.uint32] | None = None
    kept: NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True)
class FolderContent:
    """
    What a source says of its samples, in their order: the keys, the values of each payload field, the columns.

    ``listed`` are folders that were looked into, from the folder on, and their times (ns) before that; ``read`` are
    files that the samples depend on, besides those that are whole values. ``begun_ns`` is when the source was opened,
    by ``time.time_ns``; 0 keeps no index, since what the samples depend on cannot be watched.
    """

    schema: Schema
    keys: Sequence[str]
    values: Mapping[str, FieldValues]
    columns: Mapping[str, NDArray[Any]]
    metadata: Mapping[str, Any]
    listed: Mapping[str, int]
    read: Sequence[str]
    begun_ns: int


def root_of(path: str) -> str:
    """
    Return the folder that names begin at: that of the path, links resolved, or the one that a file is in; of a pattern,
    the outermost that it is compared with.
    """
    if is_pattern(path):
        return os.path.realpath(next(iter(folders_of_pattern(path)), "."))
    real = os.path.realpath(path)
    return real if Path(real).is_dir() else str(Path(real).parent)


def open_kept(path: str, options: Unpacked, read: Read = "auto", *, jump: bool = False) -> Shard | None:
    """
    Return the samples of a path by the index that is kept; None if there is none, or none that is still right.

    ``read`` and ``jump`` are as in ``open_store``.
    """
    if not (Path(path).exists() or is_pattern(path)):
        return None
    for place in _places(path, options):
        kept = _read_kept(place, path, options)
        if kept is None:
            continue
        try:
            kept.data.check_listing()
            shard = _mapped(kept.shard, kept.data, read)
        except StoreError as exc:
            _LOG.debug("%s", exc)
            continue
        return _noting(shard, place) if jump else shard
    return None


def open_listed(
    path: str, options: Unpacked, content: FolderContent, read: Read = "auto", *, jump: bool = False
) -> Shard:
    """
    Return the samples that a source found, and keep their index; what differs from an older one is logged.

    ``read`` and ``jump`` are as in ``open_store``. Raises StoreError if a file was changed since it was listed, or
    cannot be mapped.
    """
    root = root_of(path)
    files, starts, sizes = _laid_out(root, content)
    stamps = _watched(root, content)
    keys = np.frombuffer(b"\0".join(map(os.fsencode, content.keys)), np.uint8)
    crc = crc32(keys)
    for array in (*content.columns.values(), *sizes.values()):
        crc = crc32(byte_view(array), crc)
    crc = crc32(byte_view(files.kept), crc)
    data = _folder(path, options, files, stamps, crc)
    shard = Shard(
        path=path,
        data=data,
        schema=content.schema,
        count=len(content.keys),
        starts=starts,
        sizes=sizes,
        checksums={name: each.checksums for name, each in content.values.items() if each.checksums is not None},
        shapes={},
        intervals={},
        columns=content.columns,
        keys=Keys.of(keys, len(content.keys), path=path),
        metadata=json.dumps(content.metadata).encode("ascii"),
        content_crc=crc,
    )
    before = next((each for place in _places(path, options) if (each := _read_kept(place, path, options))), None)
    if before is not None:
        _tell_changes(path, before.data.files, files)
        shard = _with_known(shard, files, before)
    place = _keep(shard, options, files, stamps, content.begun_ns)
    shard = _mapped(shard, data, read)
    return _noting(shard, place) if jump and place else shard


def _noting(shard: Shard, place: str) -> Shard:
    """
    Return files whose start points are noted beside their index when they are first read; as they are if the index has
    some, if they are no JPEGs in files of their own, or if these cannot be kept there.
    """
    names = [field.name for field in shard.schema.payload if field.traits.is_image]
    folder = shard.data
    if len(names) != 1 or names[0] in shard.intervals or not isinstance(folder, ListedFolder):
        return shard
    listing = crc32(folder.files.names)
    for array in (folder.files.sizes, folder.files.mtimes):
        listing = crc32(byte_view(array), listing)
    try:
        points = NotedPoints(points_path(place), shard.sizes[names[0]], listing)
    except (StoreError, OSError) as exc:
        _LOG.warning("%s: no start points are noted: %s", shard.path, exc)
        return shard
    folder.note = points.note
    return replace(shard, noted={names[0]: points.placed})


def _mapped(shard: Shard, folder: ListedFolder, read: Read) -> Shard:
    """
    Return the samples over mapped files, if these are few that hold many values each; else as they are.

    Raises StoreError if a file is not what was listed, or cannot be mapped.
    """
    if read == "pread" or (read == "auto" and network_file_system(folder.root) is not None):
        return shard
    kept = len(folder.files.kept)
    if not are_few(folder.files, sum(int((starts >= kept).sum()) for starts in shard.starts.values())):
        return shard
    data = MappedFolder(folder)
    starts = {name: data.placed(np.asarray(each)) for name, each in shard.starts.items()}
    return replace(shard, data=data, starts=starts)


def _with_known(shard: Shard, files: FileList, before: _Kept) -> Shard:
    """
    Return samples with what is known of their content by an older index: all of it if it is about the same files, else
    the start points within values that lie where they did, in files that are as they were.
    """
    old, listed = before.shard, before.data.files
    same = all(np.array_equal(getattr(files, name), getattr(listed, name)) for name in ("names", "sizes", "mtimes"))
    same = same and old.content_crc == shard.content_crc and old.schema == shard.schema
    if same and all(np.array_equal(starts, old.starts[name]) for name, starts in shard.starts.items()):
        checksums = {**old.checksums, **shard.checksums}
        return replace(shard, checksums=checksums, shapes=old.shapes, intervals=old.intervals)
    names = [each.name for each in shard.schema.payload if each.traits.is_image and each.name in old.intervals]
    numbers = _numbers_before(files, listed) if names else np.zeros(0, np.int64)
    intervals = {}
    for name in names:
        rows = _rows_before(shard, files, old, listed, name, numbers)
        was = old.intervals[name]
        stays = np.flatnonzero(rows >= 0)
        counts = np.zeros(shard.count, np.uint32)
        counts[stays] = was.counts[rows[stays]]
        noted = Spans.joined(was.places.view(np.uint8), 4 * was.counts.astype(np.int64)).at(rows[stays])
        places = np.concatenate([np.zeros(0, np.uint8), *noted.views()]).view(np.uint32)
        if len(places):
            intervals[name] = Intervals(counts, places)
    return replace(shard, intervals=intervals)


def _numbers_before(files: FileList, listed: FileList) -> NDArray[np.int64]:
    """Return the number that each file had in an older list, if its size and time are the same; else -1."""
    known = {name: number for number, name in enumerate(_split(listed.names))}
    numbers = np.array([known.get(name, -1) for name in _split(files.names)], np.int64)
    there = np.flatnonzero(numbers >= 0)
    was = numbers[there]
    differs = (files.sizes[there] != listed.sizes[was]) | (files.mtimes[there] != listed.mtimes[was])
    numbers[there[differs]] = -1
    return numbers


def _rows_before(
    shard: Shard, files: FileList, old: Shard, listed: FileList, name: str, numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return which value of a field an older index has in the same bytes of a file, by ``numbers``; else -1."""
    file, offset = _within_files(files, shard.starts[name])
    file = np.where(file >= 0, numbers[np.maximum(file, 0)], -1)
    places = zip(file.tolist(), offset.tolist(), shard.sizes[name].tolist(), strict=True)
    file_before, offset_before = _within_files(listed, old.starts[name])
    before = zip(file_before.tolist(), offset_before.tolist(), old.sizes[name].tolist(), strict=True)
    row_at = {place: row for row, place in enumerate(before) if place[0] >= 0}
    return np.array([row_at.get(place, -1) for place in places], np.int64)


def _within_files(files: FileList, starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the file that each value begins in, -1 for one that lies in none, and where in it."""
    bounds = files.bounds()
    at = np.searchsorted(bounds[:-1], starts, side="right") - 1
    return at - 1, starts - bounds[at]


@dataclass(frozen=True, slots=True)
class _Stamps:
    """
    What an index depends on, by names from the folder on: ``(n, 3)``, size (-1 for a folder), mtime and, of what is no
    folder, ctime in ns.
    """

    names: Sequence[str]
    values: NDArray[np.int64]

    def changed(self, root: str) -> str:
        """Return the first of these that is another by now, "" if none is."""
        now = _stamps_of(root, self.names)
        differs = (now != self.values).any(axis=1)
        return self.names[int(differs.argmax())] if differs.any() else ""


def _stamps_of(root: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Return size (-1 for a folder), mtime and, unless it is a folder, ctime of each name; zeros for what is gone."""
    seen = _look(root, names)
    is_folder = (seen[:, 1] & _TYPE_BITS) == stat.S_IFDIR
    changed = np.zeros(len(names), np.int64)
    for i in np.flatnonzero((seen[:, 0] == 0) & ~is_folder).tolist():
        with suppress(OSError):  # gone meanwhile: it differs
            changed[i] = os.stat(f"{root}/{names[i]}").st_ctime_ns  # noqa: PTH116 - of many
    return np.stack((np.where(is_folder, _FOLDER_SIZE, seen[:, 2]), seen[:, 4], changed), axis=1)


def _look(root: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Look at these names; see ``_native.stat_files``. Raises StoreError if the folder cannot be opened."""
    seen = np.zeros((len(names), 5), np.int64)
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"{root}: the folder cannot be opened: {exc.strerror or exc}") from exc
    try:
        _native.stat_files(handle, names, seen)
    finally:
        os.close(handle)
    return seen


def _laid_out(
    root: str, content: FolderContent
) -> tuple[FileList, dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
    """Return all files one behind the other, and where each value begins among them, and its size."""
    kept = [each.kept for each in content.values.values() if each.kept is not None]
    names, expected, firsts, is_container = _every_file(content)
    seen = _look(root, names)
    differs = (seen[:, 0] != 0) | (seen[:, 2] != expected)
    # Where values lie in a container was read from it: it must not have been written to meanwhile.
    now_ns = time.time_ns() + SETTLED_NS
    differs |= is_container & (content.begun_ns < seen[:, 4]) & (seen[:, 4] <= now_ns) & (content.begun_ns > 0)
    if differs.any():
        raise StoreError(f"{root}/{names[int(differs.argmax())]}: changed while it was indexed: open it again")
    joined = _joined(names)
    own = np.concatenate([np.zeros(0, np.uint8), *kept])
    files = FileList(joined, _name_starts(joined), expected, np.ascontiguousarray(seen[:, 4]), own)
    bounds = files.bounds()
    starts: dict[str, NDArray[np.int64]] = {}
    sizes: dict[str, NDArray[np.int64]] = {}
    kept_at = 0
    for name, each in content.values.items():
        sizes[name] = each.sizes
        if each.names is None:
            starts[name] = kept_at + np.cumsum(each.sizes) - each.sizes
            kept_at += int(each.sizes.sum())
            continue
        numbers = firsts[name] if each.numbers is None else firsts[name][each.numbers]
        skips = np.zeros(len(numbers), np.int64) if each.skips is None else each.skips
        leaves = (skips < 0) | (each.sizes < 0) | (each.sizes > expected[numbers] - skips)
        if leaves.any():
            i = int(leaves.argmax())
            raise StoreError(
                f"{root}/{names[int(numbers[i])]}: sample {content.keys[i]!r}, field {name!r}: {each.sizes[i]:,} bytes "
                f"from {skips[i]:,} leave a file of {expected[numbers[i]]:,}: get the file again"
            )
        starts[name] = bounds[numbers + 1] + skips
    return files, starts, sizes


def _every_file(
    content: FolderContent,
) -> tuple[list[str], NDArray[np.int64], dict[str, NDArray[np.int64]], NDArray[np.bool_]]:
    """
    Return the names of all files, their sizes, which of them the files of each field are, and which are containers.

    A container that several fields lie in is one file. Files that are whole values may be there several times.
    """
    names, sizes = list[str](), list[NDArray[np.int64]]()
    known, firsts = dict[str, int](), dict[str, NDArray[np.int64]]()
    for field, each in content.values.items():
        if each.names is None or each.file_sizes is None:
            continue
        if each.numbers is None:
            firsts[field] = np.arange(len(names), len(names) + len(each.names))
            names += each.names
            sizes.append(each.file_sizes)
            continue
        at = list[int]()
        for name, size in zip(each.names, each.file_sizes, strict=True):
            if name not in known:
                known[name] = len(names)
                names.append(name)
                sizes.append(np.array([size], np.int64))
            at.append(known[name])
        firsts[field] = np.array(at, np.int64)
    is_container = np.zeros(len(names), np.bool_)
    is_container[list(known.values())] = True
    return names, np.concatenate([np.zeros(0, np.int64), *sizes]), firsts, is_container


def _joined(names: Sequence[str]) -> NDArray[np.uint8]:
    """Return names with a NUL behind each."""
    return np.frombuffer(os.fsencode("\0".join([*names, ""]) if names else ""), np.uint8)


def _name_starts(joined: NDArray[np.uint8]) -> NDArray[np.int64]:
    ends = np.flatnonzero(joined == 0)
    return np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1)) if len(ends) else np.zeros(0, np.int64)


def _split(joined: NDArray[np.uint8]) -> list[str]:
    return os.fsdecode(joined.tobytes()).split("\0")[:-1]


def _watched(root: str, content: FolderContent) -> _Stamps:
    """Return what the index depends on. Folders have the times from before they were listed."""
    names = [*content.listed, *content.read]
    values = _stamps_of(root, names)
    values[: len(content.listed), 1] = list(content.listed.values())
    return _Stamps(names, values)


def _folder(path: str, options: Unpacked, files: FileList, stamps: _Stamps, content: int) -> ListedFolder:
    root = root_of(path)

    def check() -> None:
        name = stamps.changed(root)
        if name:
            raise StoreError(f"{path}: {name!r} was changed since it was indexed: open {path} again")

    def forget() -> None:
        for place in _places(path, options):
            with suppress(OSError):
                Path(place).unlink()

    return ListedFolder(path, root, files, content=content, check_listing=check, forget=forget)


# What reading all files once adds to an index.


LookAt = Callable[[Spans, Field], tuple[NDArray[np.int32], Mapping[int, str]]]


def with_content(shard: Shard, look: LookAt) -> tuple[Shard, dict[int, str]]:
    """
    Return the samples of a folder with the checksum of each value and the sizes of pictures; and, by position, what is
    wrong with pictures.

    ``look`` gives height, width and channels ``(n, 3)`` of some pictures of a field, 0 where they are not known, and
    sentences on those that are damaged. All files are read. Raises StoreError if one is not what was listed, and
    StoreCorrupt for a value that differs from the checksum that it has already.
    """
    files, checksums, shapes = files_of([shard.data]), dict[str, NDArray[np.uint32]](), dict[str, NDArray[np.int32]]()
    problems = dict[int, str]()
    with closing(_native.ThreadPool(available_cpus())) as pool:
        for field in shard.schema.payload:
            starts, sizes = (np.ascontiguousarray(each[field.name]) for each in (shard.starts, shard.sizes))
            sums, seen = np.zeros(shard.count, np.uint32), np.zeros((shard.count, 3), np.int32)
            every = Spans(files.buffers, np.zeros(shard.count, np.int32), starts, sizes)
            for part, values, unread in fetch_pieces(files, every):
                if unread is not None:
                    bad = every.at(part).at(np.flatnonzero(unread))
                    raise StoreError(f"{shard.path}: {files.failure(bad) or 'a file cannot be read: try again'}")
                _native.checksum(values, sums[part], pool).wait()
                if field.traits.is_picture:
                    seen[part], found = look(values, field)
                    words = {part.start + i: each for i, each in found.items()}
                    problems = {**words, **problems}
            wrong = np.flatnonzero(sums != shard.checksums.get(field.name, sums))
            if len(wrong):
                key = shard.key(int(wrong[0]))
                advice = "get the file again, or `touch` it if it is meant to be another now"
                raise StoreCorrupt(f"{shard.path}: {key!r}, field {field.name!r}: differs from its checksum: {advice}")
            checksums[field.name] = sums
            if field.traits.is_picture:
                shapes[field.name] = seen
    return replace(shard, checksums=checksums, shapes=shapes), problems


def count_files(shard: Shard) -> int:
    """Return how many files hold the values of samples in place."""
    folder = shard.data.listed if isinstance(shard.data, MappedFolder) else shard.data
    return len(folder.files.sizes) if isinstance(folder, ListedFolder) else 0


def keep_content(shard: Shard, options: Unpacked) -> str:
    """
    Keep what was read of the files in the index of a folder; return where. Raises StoreError if none is kept by now.
    """
    for place in _places(shard.path, options):
        kept = _read_kept(place, shard.path, options)
        if kept is not None and kept.shard.content_crc == shard.content_crc:
            kept.data.check()
            known = replace(kept.shard, checksums=shard.checksums, shapes=shard.shapes, intervals=shard.intervals)
            _write(place, known, options, kept.data.files, kept.stamps)
            if shard.intervals:
                Path(points_path(place)).unlink(missing_ok=True)  # which the index has, too
            return place
    raise StoreError(
        f"{shard.path}: has no index that could keep it: if it is being changed, try again; if neither its "
        "folder nor the cache directory can be written to, set XDG_CACHE_HOME"
    )


# Where an index is kept, and how it is read and written.


def _places(path: str, options: Unpacked) -> list[str]:
    """
    Return where the index of a path may be kept: beside it, or in the cache directory; that of a pattern only there,
    since it would lie among the files, whose folder is watched.
    """
    text = options.text(path)
    places = index_places(path, f".{crc32(text.encode()):08x}" if text else "", text)
    return places[-1:] if is_pattern(path) else places


def _keep(shard: Shard, options: Unpacked, files: FileList, stamps: _Stamps, begun_ns: int) -> str:
    """
    Write the index where that is possible, unless what it depends on may still change without a trace; return where, ""
    if it is not kept.
    """
    if int(stamps.values[:, 1].max(initial=0)) > begun_ns - SETTLED_NS:
        _LOG.debug("%s: no index is kept, because it was changed a moment ago", shard.path)
        return ""
    for place in _places(shard.path, options):
        try:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            _write(place, shard, options, files, stamps)
        except (StoreError, OSError) as exc:
            _LOG.debug("%s: its index is not kept in %s: %s", shard.path, place, exc)
        else:
            return place
    return ""


def _write(place: str, shard: Shard, options: Unpacked, files: FileList, stamps: _Stamps) -> None:
    """Write an index, with what is known of the content of the files. Raises StoreError."""
    own = {"rules": _RULES, "options": options.text(shard.path), "content_crc": shard.content_crc}
    metadata = json.dumps({**json.loads(shard.metadata), _OWN: own}).encode("ascii")
    arrays = {
        **arrays_of(shard, metadata),
        "file.names": files.names,
        "file.sizes": files.sizes,
        "file.mtimes": files.mtimes,
        "file.kept": files.kept,
        "watch.names": _joined(stamps.names),
        "watch.stamps": stamps.values,
    }
    publish_sidecar(place, _FORMAT, shard.schema, shard.count, arrays)


@dataclass(frozen=True, slots=True)
class _Kept:
    """An index that was read, and where."""

    place: str
    shard: Shard
    data: ListedFolder
    stamps: _Stamps


def _read_kept(place: str, path: str, options: Unpacked) -> _Kept | None:
    """Read an index; None if there is none, or if it is damaged or was made with other options."""
    try:
        file = open_file(place, "map")
        seal = find_seal(place, file.size, partial(bytes_from, file), always_at(-SEAL_SIZE))
        raw = file.read(seal.header_start, seal.header_start + seal.header_size)
        header = IndexHeader.from_bytes(raw.tobytes(), path=place)
        own = read_arrays(file, {name: each for name, each in header.places.items() if "." in name})
        names = own["file.names"]
        files = FileList(names, _name_starts(names), own["file.sizes"], own["file.mtimes"], own["file.kept"])
        files.check()
        stamps = _Stamps(_split(own["watch.names"]), own["watch.stamps"])
        data = _folder(path, options, files, stamps, 0)
        shard = read_shard(file, format_name=_FORMAT, seal_at=always_at(-SEAL_SIZE), payload=data)
        metadata = dict(json.loads(shard.metadata))
        said = metadata.pop(_OWN)
        crc = int(said["content_crc"])
        if (said["rules"], said["options"]) != (_RULES, options.text(path)):
            return None
    except StoreNotFound:
        return None
    except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        _LOG.debug("%s: listed, because its index cannot be used: %s", path, exc)
        return None
    data.identity = {**data.identity, "content": crc}
    metadata_bytes = json.dumps(metadata).encode("ascii")
    shard = replace(shard, path=path, metadata=metadata_bytes, seal=None, content_crc=crc)
    return _Kept(place, shard, data, stamps)


# What is said, in one line each.


def tell_skipped(path: str, count: int, metadata: bytes) -> None:
    """Log how many files are no samples beside ``count``, if any should be."""
    skipped = json.loads(metadata).get("skipped") or ()
    if skipped:
        _LOG.warning(
            "%s: samples: %s; not among them: %s, e.g. %r %s",
            path,
            f"{count:,}",
            f"{len(skipped):,}",
            skipped[0]["key"],
            skipped[0]["problem"],
        )


def _tell_changes(path: str, listed: FileList, files: FileList) -> None:
    """Log what was added, removed and changed since ``listed``."""
    before, now = _versions(listed), _versions(files)
    changes = {
        "added": [name for name in now if name not in before],
        "removed": [name for name in before if name not in now],
        "changed": [name for name, version in now.items() if before.get(name, version) != version],
    }
    said = [f"{counted(len(names), 'file')} {what} ({names[0]!r})" for what, names in changes.items() if names]
    if said:
        _LOG.warning("%s: since it was indexed: %s", path, ", ".join(said))


def _versions(files: FileList) -> dict[str, tuple[int, int]]:
    return dict(zip(_split(files.names), zip(files.sizes.tolist(), files.mtimes.tolist(), strict=True), strict=True))
