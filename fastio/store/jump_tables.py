"""Start points (jump tables): where decoders can start within JPEGs, in an index or beside a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool, checksum, crc32
from fastio.errors import StoreCorrupt, StoreError, StoreNotFound
from fastio.machine import available_cpus
from fastio.store.files import KINDS, ByteSource, StoreFiles, files_of
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT
from fastio.store.foreign.sidecar import publish_sidecar
from fastio.store.index.seal import SEAL_SIZE, Expected, IndexHeader, Seal, always_at, find_seal
from fastio.store.index.sealed import Intervals, Shard, bytes_from, check_array, hints_of, intervals_of, read_arrays
from fastio.store.sets.names import SIDECAR_SUFFIX
from fastio.types.spans import Spans

__all__ = [
    "ELSEWHERE",
    "PHOTO_SIDE",
    "JumpRule",
    "begin_jump_tables",
    "read_added",
    "with_points",
    "write_added",
]


# MCUs between two that are noted. On 300 ImageNet photos tables with 4 take 2.3 % of the bytes, with 8 1.2 %, with 16
# 0.6 %.
JUMP_SPACING = 8

# Files below this size get none. On photos of ImageNet shrunk to 32 to 256 pixels, RandomResizedCrop gains nothing at
# 1.4 kB a file (0.996), 7 % at 9 kB and 18 % at 30 kB; reading all codes costs as much a byte at any size.
_LEAST_BYTES = 8 << 10

PHOTO_SIDE = 256  # pixels of the short side from which tips promise a gain; smaller pictures were not measured


@dataclass(frozen=True, slots=True)
class JumpRule:
    """Which pictures have start points: JPEGs of at least so many bytes."""

    least_bytes: int = _LEAST_BYTES

    def takes(self, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which files of these bytes are large enough."""
        return sizes >= self.least_bytes

    def to_json(self) -> dict[str, Any]:
        """Return what the plan of a set records; ``from_json`` reads it."""
        return {"jump": JUMP_SPACING, "jump_from": self.least_bytes}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JumpRule | None:
        """Return the rule of a plan; None if it makes none. Plans of fastio 0.1 make them for JPEGs of any size."""
        return cls(record.get("jump_from", 0)) if "jump" in record else None


def begin_jump_tables(
    spans: Spans, pool: _native.ThreadPool | None = None, *, rule: JumpRule | None = None
) -> Callable[[], tuple[Spans, NDArray[np.int32]]]:
    """
    Begin to read all codes of the JPEGs among ``spans`` whose ``intervals`` are not known.

    The result waits for it and returns the spans with jump tables as ``intervals``, and a status (n,) for each: that of
    a damaged JPEG, which has no table, or OK. Pictures that need no table or cannot have one (other kinds, progressive
    JPEGs, those with restart markers) have none, nor are those read that ``rule`` leaves out.
    """
    known = np.zeros(len(spans), np.int64) if spans.intervals is None else spans.intervals.sizes
    rows = np.flatnonzero((known == 0) & (rule or JumpRule()).takes(spans.sizes))
    if not len(rows):
        return lambda: (spans, np.zeros(len(spans), np.int32))
    tables = _native.JumpTables(len(rows))
    job = _native.note_points(spans.at(rows), tables, pool, spacing=JUMP_SPACING)

    def finish() -> tuple[Spans, NDArray[np.int32]]:
        job.wait()
        words, counts, status = tables.take()
        all_status = np.zeros(len(spans), np.int32)
        all_status[rows] = status
        noted = Spans.joined(words.view(np.uint8), 4 * counts.astype(np.int64))
        if not len(words):
            return spans, all_status
        return replace(spans, intervals=_merged(spans.intervals, noted, rows, len(spans))), all_status

    return finish


def _merged(known: Spans | None, noted: Spans, rows: NDArray[np.int64], count: int) -> Spans:
    """Return the intervals of ``count`` pictures: those that were known, and those that were noted of ``rows``."""
    if known is None:
        if len(rows) == count:
            return noted
        sizes = np.zeros(count, np.int64)
        sizes[rows] = noted.sizes
        starts = np.cumsum(sizes) - sizes
        return Spans(noted.buffers, np.zeros(count, np.int32), starts, sizes)
    values = [view.tobytes() for view in known.views()]
    for row, view in zip(rows.tolist(), noted.views(), strict=True):
        values[row] = view.tobytes()
    sizes = np.array([len(value) for value in values], np.int64)
    return Spans.joined(np.frombuffer(b"".join(values), np.uint8), sizes)


# Start points (jump tables) that ``fastio index`` adds to a file that exists: a sidecar beside it, which is not
# changed.
#
# ``<name>.fastio-index`` holds, for each field of pictures, ``<field>_interval_counts`` and ``<field>_intervals`` as
# the index of a file would (see ``store/index/seal.py``), a JSON header, and the seal at its end. It belongs to one
# file, by what that file's own seal says of it, and is used whenever the file is opened. One that belongs to another
# file, is damaged or was written by a newer fastio is not used, and one warning says so.

ELSEWHERE = "an index can be kept in another folder: --to DIR"

_FORMAT = "pnts"
_PIECE_BYTES = 64 << 20
_LOG = logging.getLogger(__name__)


def read_added(shard: Shard) -> Shard:
    """Return a sealed file of this machine with the start points that lie beside it; as it is if there are none."""
    if shard.seal is None or not is_local(shard.path):
        return shard
    path = shard.path + SIDECAR_SUFFIX
    try:
        file = KINDS[shard.data.kind].open(path, DEFAULT)
        intervals = _intervals(file, shard, shard.seal)
    except StoreNotFound:
        return shard
    except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        reason = str(exc).removeprefix(f"{path}: ")
        _LOG.warning(
            "%s: start points are not used: %s; make them anew (fastio index %s), or remove the file",
            path,
            reason,
            shard.path,
        )
        return shard
    return replace(shard, intervals={**shard.intervals, **intervals}, points_file=file)


def _intervals(file: ByteSource, shard: Shard, seal_of_store: Seal) -> dict[str, Intervals]:
    path = file.path
    seal = find_seal(path, file.size, partial(bytes_from, file), always_at(-SEAL_SIZE))
    if not seal.is_of(_FORMAT):
        raise StoreCorrupt(f"{path}: is the index of another kind of file")
    raw = file.read(seal.header_start, seal.header_start + seal.header_size)
    if crc32(raw) != seal.header_crc:
        raise StoreCorrupt(f"{path}: its header is damaged")
    header = IndexHeader.from_bytes(raw.tobytes(), path=path)
    arrays = read_arrays(file, header.places, hints=hints_of(shard.schema))
    file.release()
    check_array(path, arrays, "metadata", Expected("|u1", (None,)))
    if json.loads(arrays["metadata"].tobytes())["file"] != _stamp(seal_of_store):
        raise StoreCorrupt(f"{path}: they are those of another file, which had this name before")
    names = [each.name for each in shard.schema.payload if each.traits.is_image]
    for name in names:
        if f"{name}_interval_counts" in arrays:
            check_array(path, arrays, f"{name}_interval_counts", Expected("<u4", (shard.count,)))
            check_array(path, arrays, f"{name}_intervals", Expected("<u4", (None,)))
    return intervals_of(path, arrays, names)


def write_added(shard: Shard) -> str:
    """Put the start points of a sealed file beside it, over any that are there; return where. Raises StoreError."""
    assert shard.seal is not None, "a file of fastio"
    metadata = json.dumps({"file": _stamp(shard.seal)}).encode("ascii")
    arrays: dict[str, NDArray[Any]] = {}
    for name, noted in shard.intervals.items():
        arrays[f"{name}_interval_counts"] = noted.counts
        arrays[f"{name}_intervals"] = noted.places
    arrays["metadata"] = np.frombuffer(metadata, np.uint8)
    path = shard.path + SIDECAR_SUFFIX
    try:
        publish_sidecar(path, _FORMAT, shard.schema, shard.count, arrays)
    except StoreError as exc:
        exc.add_note(ELSEWHERE)
        raise
    return path


def _stamp(seal: Seal) -> dict[str, int]:
    """What tells a file from every other: its seal has the CRC-32 of all its bytes."""
    return {"count": seal.count, "size": seal.file_size, "crc": seal.file_crc, "header_crc": seal.header_crc}


def with_points(shard: Shard, progress: Callable[[int], object] = lambda samples: None) -> tuple[Shard, list[str]]:
    """
    Return a shard with the start points of all its pictures that may have some, and the keys of damaged JPEGs.

    All codes of JPEGs are read; start points that are known stay. Values are compared with their checksums, if they
    have any. ``progress`` is told how many values of a field were read at once. Raises StoreCorrupt that names the
    sample of one that differs, and StoreError if one cannot be read.
    """
    files, damaged = files_of([shard.data]), list[int]()
    intervals = dict(shard.intervals)
    with closing(ThreadPool(available_cpus())) as pool:
        for name in [each.name for each in shard.schema.payload if each.traits.is_image]:
            spans = _spans(files, shard, name)
            counts, places = np.zeros(shard.count, np.uint32), [np.empty(0, np.uint32)]
            for part in _pieces(spans.sizes):
                values, status = files.fetch(spans.at(part), pool=pool).wait()
                _check(shard, values, status, pool, part, name)
                noted, found = begin_jump_tables(values, pool)()
                damaged += (part.start + np.flatnonzero(found)).tolist()
                progress(len(values))
                if noted.intervals is not None:
                    counts[part] = noted.intervals.sizes // 4
                    places += [view.view(np.uint32) for view in noted.intervals.views()]
            if counts.any():
                intervals[name] = Intervals(counts, np.concatenate(places))
    return replace(shard, intervals=intervals), [shard.key(i) for i in sorted(set(damaged))]


def _spans(files: StoreFiles, shard: Shard, name: str) -> Spans:
    """The values of a field, with the start points that are known."""
    known = shard.intervals.get(name)
    noted = None if known is None else Spans.joined(known.places.view(np.uint8), 4 * known.counts.astype(np.int64))
    starts, sizes = (np.ascontiguousarray(array) for array in (shard.starts[name], shard.sizes[name]))
    return Spans(files.buffers, np.zeros(shard.count, np.int32), starts, sizes, shard.checksums.get(name), noted)


def _pieces(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Positions of at most so many bytes together, or of one larger value."""
    pieces = np.cumsum(sizes) // _PIECE_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(sizes)]
    return (slice(start, stop) for start, stop in pairwise(cuts) if stop > start)


def _check(
    shard: Shard, values: Spans, status: NDArray[np.int32] | None, pool: ThreadPool, part: slice, name: str
) -> None:
    """Raise StoreError unless all values were read, and are those that were packed."""

    def where(bad: NDArray[np.bool_]) -> str:
        index = part.start + int(bad.argmax())
        return f"{shard.path}[{index}] ({shard.key(index)!r}), field {name!r}"

    if status is not None and status.any():
        raise StoreError(f"{where(status != 0)}: cannot be read; check the disk, or copy the file again")
    if values.checksums is None:
        return
    sums = np.empty(len(values), np.uint32)
    checksum(values, sums, pool).wait()
    if (sums != values.checksums).any():
        raise StoreCorrupt(
            f"{where(sums != values.checksums)}: differs from its checksum, so it was damaged after packing; fastio "
            "verify lists all damage: copy the file again, or pack again"
        )
