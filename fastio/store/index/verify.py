"""Compares every byte of a store with its checksums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastio._native import OK, TRUNCATED, ThreadPool, checksum
from fastio.errors import StoreError
from fastio.store.files import ByteSource, StoreFiles, files_of
from fastio.store.files.fetch import fetch_pieces
from fastio.store.files.listed import ListedFolder
from fastio.store.files.mapped_folder import MappedFolder
from fastio.store.formats import FORMATS
from fastio.store.index.arrays import IndexArrays
from fastio.store.index.seal import SEAL_SIZE, Seal, always_at
from fastio.store.index.sealed import Shard, file_crc, seal_of
from fastio.store.index.store import SealedStore
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = [
    "Damage",
    "verify_own_file",
    "verify_store",
]


_CHUNK_SAMPLES = 1 << 16


@dataclass(frozen=True, slots=True)
class Damage:
    """A run of bytes that differs from what was packed; without key and field, it belongs to no sample."""

    shard: str
    key: str | None
    field: str | None
    start: int
    stop: int
    problem: str

    def __str__(self) -> str:
        what = "" if self.key is None else f" ({self.key!r}, field {self.field!r})"
        return f"{self.shard}: bytes {self.start} to {self.stop}{what}: {self.problem}"


def verify_store(store: SealedStore, *, pool: ThreadPool | None = None) -> list[Damage]:
    """
    Return all damages of a store, shard by shard with the start points beside it, then of its set object; an empty list
    means that every byte is as it was packed.

    Opening has already checked seals and headers. The index comes first: where it is damaged, nothing else is looked
    at, since it says where samples lie. Tar shards that others wrote have no checksums, so nothing can be compared or
    reported there.
    """
    try:
        store.check_index()
    except StoreError as exc:
        return [_of_index(store, str(exc))]
    damages: list[Damage] = []
    first = 0
    for shard in store.shards:
        damages += _verify_shard(store, shard, first, pool)
        first += shard.count
        if shard.points_file is not None:
            advice = f"make it anew: fastio index {shard.path}"
            found = verify_own_file(shard.points_file)
            damages += [replace(damage, problem=f"{damage.problem}; {advice}") for damage in found]
    if store.set_object is not None:
        damages += verify_own_file(store.set_object.file)
    return damages


def _verify_shard(store: SealedStore, shard: Shard, first: int, pool: ThreadPool | None) -> list[Damage]:
    file = shard.data
    try:
        file.check()  # reading on in a mapping that was cut off would end in SIGBUS
        found = [damage for field in shard.schema.payload for damage in _bad_samples(store, shard, field, first, pool)]
        if shard.is_sealed and not found:
            seal = shard.seal or seal_of(file, FORMATS[store.format].seal_at)
            found += _bad_file(file, seal, listed=shard.content_crc if shard.is_member else seal.file_crc)
    except StoreError as exc:
        return [_of_file(file, str(exc).removeprefix(f"{shard.path}: "))]
    finally:
        file.release()
    return found


def verify_own_file(file: ByteSource) -> list[Damage]:
    """Return the damage of a file that has its seal at its end, such as a sidecar of start points."""
    try:
        file.check()
        seal = seal_of(file, always_at(-SEAL_SIZE))
        return _bad_file(file, seal, listed=seal.file_crc)
    except StoreError as exc:
        return [_of_file(file, str(exc).removeprefix(f"{file.path}: "))]
    finally:
        file.release()


def _bad_file(file: ByteSource, seal: Seal, *, listed: int) -> list[Damage]:
    """Return the damage of a file whose samples are right, if its bytes are not those of its seal and its set."""
    if seal.file_crc != listed:
        problem = f"another shard: its set lists the CRC-32 {listed:08x}, its seal has {seal.file_crc:08x}"
        return [_of_file(file, problem)]
    crc = file_crc(file, seal)
    if crc == seal.file_crc:
        return []
    problem = f"padding or structure, not a sample: expected CRC-32 {seal.file_crc:08x} of the file, got {crc:08x}"
    return [_of_file(file, problem)]


def _of_index(store: SealedStore, problem: str) -> Damage:
    """Return a damage of an index, in the file that the problem names."""
    files = [each.data for each in store.shards] if store.set_object is None else [store.set_object.file]
    file = next((file for file in files if problem.startswith(f"{file.path}: ")), files[0])
    return _of_file(file, problem.removeprefix(f"{file.path}: "))


def _of_file(file: ByteSource, problem: str) -> Damage:
    return Damage(file.path, None, None, 0, file.size, problem)


def _bad_samples(
    store: SealedStore, shard: Shard, field: Field, first: int, pool: ThreadPool | None
) -> Iterator[Damage]:
    if field.name not in shard.checksums:
        return
    arrays = [IndexArrays.of(each).lies[field.name] for each in (shard.starts, shard.sizes, shard.checksums)]
    files, count = files_of([shard.data]), shard.values(field.name)
    for at in range(0, count, _CHUNK_SAMPLES):
        starts, sizes, expected = (array.part(at, min(at + _CHUNK_SAMPLES, count)) for array in arrays)
        spans = Spans(files.buffers, np.zeros(len(starts), np.int32), starts, sizes)
        got, status = _checksums(files, spans, pool)
        for i in np.flatnonzero((got != expected) | (status != OK)).tolist():
            key = store.keys([first + shard.owner(field.name, at + i)])[0]
            problem = f"expected CRC-32 {expected[i]:08x}, got {got[i]:08x}"
            if status[i] != OK:
                problem = "the file ends before" if status[i] == TRUNCATED else "cannot be read"
            path, start = shard.path, int(starts[i])
            if isinstance(shard.data, (ListedFolder, MappedFolder)):
                path, start = shard.data.place_of(start)
            yield Damage(path, key, field.name, start, start + int(sizes[i]), problem)


def _checksums(
    files: StoreFiles, spans: Spans, pool: ThreadPool | None
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """CRC-32 of each value, and its status where it could not be read."""
    sums, status = np.empty(len(spans), np.uint32), np.full(len(spans), OK, np.int32)
    for part, values, unread in fetch_pieces(files, spans):
        checksum(values, sums[part], pool).wait()
        if unread is not None:
            status[part] = unread
    return sums, status
