"""
The index of a tar file that another tool wrote, kept beside it.

The scan's result is kept as ``<name>.tar.fastio-index`` if the folder is writable: index arrays aligned to 64 bytes,
with start points if ``fastio index`` has added them, the JSON header, the seal at the end. It is bound to the archive
by size, times of modification and of change (mtime, ctime) and the CRC-32 of up to 256 member headers, and rebuilt if
one of these differs. Only the kernel sets a ctime, so an edit that restores the mtime is noticed; a copy has a new
ctime and is scanned once more.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.files import KINDS, ByteSource
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT
from fastio.store.foreign.scan import BLOCK, header_starts
from fastio.store.index.seal import SEAL_SIZE, IndexHeader, Place, Seal, always_at, byte_view, set_checksum
from fastio.store.index.sealed import Shard, read_shard
from fastio.store.listing import remove_stale
from fastio.store.sets.names import SIDECAR_SUFFIX
from fastio.store.write.atomic import PartialFile, publish_file, writing
from fastio.types.schema import Schema

__all__ = [
    "LEDGER",
    "arrays_of",
    "index_places",
    "publish_sidecar",
    "read_sidecar",
    "write_sidecar",
]


LEDGER: Final = ("skipped", "left_out")  # lists in the metadata

_FORMAT = "tari"
_ALIGNMENT = 64
_BOUND_HEADERS = 256
_RULES = 2  # by which members become fields; an index that was made by others is not used
_LOG = logging.getLogger(__name__)


def read_sidecar(file: ByteSource) -> Shard | None:
    """Return the index kept beside an archive; None if there is none for this archive, or none that can be used."""
    path = file.path
    try:
        sidecar = KINDS[file.kind].open(path + SIDECAR_SUFFIX, DEFAULT)
        kept = read_shard(sidecar, format_name=_FORMAT, seal_at=always_at(-SEAL_SIZE), payload=file)
        sidecar.release()
        metadata: dict[str, Any] = dict(json.loads(kept.metadata))
        bound = metadata.pop("archive")
        content_crc = bound.pop("content_crc")
        _check_crc(content_crc)
        _check_ledger(metadata)
    except (StoreError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as exc:
        _LOG.debug("%s: scanned, because its index cannot be used: %s", path, exc)
        return None
    if bound != {**_stamp(file), "headers_crc": _headers_crc(kept)}:
        return None
    metadata_bytes = json.dumps(metadata).encode("ascii")
    return replace(kept, path=path, metadata=metadata_bytes, seal=None, content_crc=content_crc)


def write_sidecar(shard: Shard, archive: ByteSource) -> str:
    """Keep the index of an archive beside it, with start points if it has any; return where. Raises StoreError."""
    path = shard.path + SIDECAR_SUFFIX
    bound = {**_stamp(archive), "headers_crc": _headers_crc(shard), "content_crc": shard.content_crc}
    metadata = json.dumps({**json.loads(shard.metadata), "archive": bound}).encode("ascii")
    publish_sidecar(path, _FORMAT, shard.schema, shard.count, arrays_of(shard, metadata))
    return path


def arrays_of(shard: Shard, metadata: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of the index of samples in place, with what is known of their content."""
    return {
        **{f"{name}_starts": starts for name, starts in shard.starts.items()},
        **{f"{name}_sizes": sizes for name, sizes in shard.sizes.items()},
        **{f"{name}_checksums": sums for name, sums in shard.checksums.items()},
        **{f"{name}_shapes": shapes for name, shapes in shard.shapes.items()},
        **{f"{name}_interval_counts": noted.counts for name, noted in shard.intervals.items()},
        **{f"{name}_intervals": noted.places for name, noted in shard.intervals.items()},
        **shard.columns,
        "keys": shard.keys.array,
        "metadata": np.frombuffer(metadata, np.uint8),
    }


def publish_sidecar(path: str, form: str, schema: Schema, count: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of index arrays, sealed as of the format ``form``, over what has the name. Raises StoreError."""
    with writing(path):
        remove_stale(Path(path).parent, re.compile(re.escape(Path(path).name)))
    file = PartialFile(path)
    try:
        _fill_sidecar(file, form, schema, count, arrays)
        publish_file(file, replace=True)
    finally:
        file.discard()


def index_places(path: str, mark: str, text: str) -> list[str]:
    """
    Return where an index may be kept: beside a path of this machine, whose name gets ``mark``, or in the cache
    directory, under a name made of path and ``text``.
    """
    place = os.path.realpath(path) if is_local(path) else path
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - may fail without a home
    digest = hashlib.sha256(os.fsencode(f"{place}\0{text}")).hexdigest()[:16]
    in_cache = f"{cache}/fastio/{Path(place).name}-{digest}{SIDECAR_SUFFIX}"
    return [f"{place}{mark}{SIDECAR_SUFFIX}", in_cache] if is_local(path) else [in_cache]


def _stamp(file: ByteSource) -> dict[str, int | str]:
    """What an index is bound to. A copy with the same times may use the same index, so inodes are left out."""
    return {"rules": _RULES, **{name: value for name, value in file.identity.items() if name != "inode"}}


def _headers_crc(shard: Shard) -> int:
    """Return the CRC-32 of the header block of up to 256 members, evenly spread: another archive differs there."""
    starts = np.sort(np.concatenate([*shard.starts.values()]))
    chosen = starts[np.linspace(0, len(starts) - 1, min(len(starts), _BOUND_HEADERS)).astype(np.int64)]
    crc = 0
    for start in header_starts(chosen).tolist():
        crc = crc32(shard.data.read(max(0, start), max(0, start + BLOCK)), crc)
    return crc


def _check_crc(value: object) -> None:
    """Raise an error unless this is a CRC-32."""
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError(f"content_crc: {value!r}")


def _check_ledger(metadata: dict[str, Any]) -> None:
    """Raise an error unless the ledger is as ``_build`` makes it."""
    for name in LEDGER:
        for entry in metadata[name]:
            if not isinstance(entry["key"] + entry["problem"], str):
                raise TypeError(f"{name}: {entry!r}")


def _fill_sidecar(file: PartialFile, form: str, schema: Schema, count: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    places: dict[str, Place] = {}
    for name, each in arrays.items():
        file.write(bytes(-file.size % _ALIGNMENT))
        raw = byte_view(each)
        places[name] = Place(file.size, each.dtype.str, each.shape, crc32(raw))
        file.write(raw)
    header, header_start = IndexHeader(schema=schema, base=0, places=places).to_bytes(), file.size
    file.write(header)
    file.flush()
    file_size = file.size + SEAL_SIZE
    seal = Seal(
        format=form,
        count=count,
        file_size=file_size,
        seal_start=file.size,
        head_size=0,
        header_start=header_start,
        header_size=len(header),
        set_count=count,
        shard=0,
        shards=1,
        header_crc=crc32(header),
        head_crc=0,
        file_crc=file.crc,
        set_crc=set_checksum([(count, file_size, file.crc)]),
    )
    file.write(seal.pack())
