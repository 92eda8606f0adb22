"""Compares every byte of a store with its checksums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastio._native import ThreadPool, checksum, crc32
from fastio.store.index import SealedStore
from fastio.store.mapping import readable
from fastio.store.seal import unsealed_regions
from fastio.store.sealed import Shard
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["Damage", "verify_store"]

_CHUNK_SAMPLES = 1 << 16
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """A run of bytes that is not what was packed; without key and field it belongs to no sample."""

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
    All damages of a store, shard by shard; an empty list means that every byte is as it was packed.

    Opening has checked seal, header and index arrays already. Tar shards that others wrote
    have no checksums: nothing can be compared there, and nothing is reported.
    """
    damages: list[Damage] = []
    first = 0
    for shard in store.shards:
        damages += _verify_shard(store, shard, first, pool)
        first += shard.count
    return damages


def _verify_shard(store: SealedStore, shard: Shard, first: int, pool: ThreadPool | None) -> list[Damage]:
    with readable(shard.path):
        size = Path(shard.path).stat().st_size
    if size < len(shard.data):  # reading on would end in SIGBUS
        return [Damage(shard.path, None, None, size, len(shard.data), f"cut off, expected {len(shard.data)} bytes")]
    found = [damage for field in shard.schema.payload for damage in _bad_samples(store, shard, field, first, pool)]
    if shard.seal is None:
        return found
    seal, crc = shard.seal, 0
    regions = unsealed_regions(file_size=seal.file_size, seal_start=seal.seal_start, head_size=seal.head_size)
    for start, stop in regions:
        for at in range(start, stop, _CHUNK_BYTES):
            crc = crc32(shard.data[at : min(at + _CHUNK_BYTES, stop)], crc)
    if crc != seal.file_crc and not found:
        problem = f"padding or structure, no sample: expected CRC-32 {seal.file_crc:08x} of the file, got {crc:08x}"
        found.append(Damage(shard.path, None, None, 0, len(shard.data), problem))
    return found


def _bad_samples(
    store: SealedStore, shard: Shard, field: Field, first: int, pool: ThreadPool | None
) -> Iterator[Damage]:
    expected = shard.checksums.get(field.name)
    if expected is None:
        return
    starts, sizes = shard.starts[field.name], shard.sizes[field.name]
    for at in range(0, shard.count, _CHUNK_SAMPLES):
        part = slice(at, at + _CHUNK_SAMPLES)
        got = np.empty(len(starts[part]), np.uint32)
        checksum(Spans.of(shard.data, np.array(starts[part]), np.array(sizes[part])), got, pool).wait()
        for i in (np.flatnonzero(got != expected[part]) + at).tolist():
            start, stop = int(starts[i]), int(starts[i] + sizes[i])
            problem = f"expected CRC-32 {expected[i]:08x}, got {got[i - at]:08x}"
            yield Damage(shard.path, store.keys([first + i])[0], field.name, start, stop, problem)
