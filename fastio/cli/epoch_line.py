"""How long one sequential pass over a store takes, at the rate at which it can be read here and now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastio.types.units import counted, duration, size

if TYPE_CHECKING:
    from fastio.store import SampleStore

__all__ = ["epoch_facts", "epoch_line", "shard_bytes"]


def epoch_facts(store: SampleStore) -> dict[str, Any] | None:
    """
    Return the bytes that one epoch reads and the seconds it takes, or None if no rate can be measured.

    The rate is measured on the store's own files, past the page cache. Of a store behind a URL, it is requests and
    memory of an epoch with ``shuffle=True`` instead, by arithmetic.
    """
    from fastio.measure.machine.disk_kind import read_uncached

    if store.files.holds:
        return _held_facts(store)
    read = read_uncached(store.shard_paths)
    if read is None:
        return None
    whole = store.size_bytes
    return {
        "seconds": whole / read.bytes_per_s,
        "size_bytes": whole,
        "bytes_per_s": read.bytes_per_s,
        "measured_bytes": read.size_bytes,
    }


def shard_bytes(store: SampleStore) -> int:
    """Return the bytes of the files over which a rate is measured: all but the set object."""
    from fastio.store.index.store import SealedStore

    set_object = store.set_object if isinstance(store, SealedStore) else None
    return store.size_bytes - (0 if set_object is None else set_object.file.size)


def epoch_line(facts: dict[str, Any] | None, size_bytes: int) -> str:
    """Return these facts as one line; without facts, why there are none of shards of ``size_bytes``."""
    if facts is not None and "requests" in facts:
        return (
            f"epoch:  {counted(facts['requests'], 'request')} for {size(facts['size_bytes'])}, of which at most "
            f"{size(facts['memory_bytes'])} are in memory (one rank, shuffle=True, batches of {facts['batch_size']})"
        )
    if facts is None:
        return f"epoch:  not measured: {_why_not(size_bytes)}"
    return (
        f"epoch:  reading the store once takes {duration(facts['seconds'])} at {size(facts['bytes_per_s'])}/s, what "
        f"the disk gives without the page cache (measured now over {size(facts['measured_bytes'])}; `fastio bench "
        "disk` says more)"
    )


def _why_not(size_bytes: int) -> str:
    from fastio.measure.machine.disk_kind import LEAST_BYTES

    if size_bytes < LEAST_BYTES:
        return f"its samples lie in {size(size_bytes)}, and a rate takes at least {size(LEAST_BYTES)} to measure"
    return "its file system cannot be read past the page cache"


def _held_facts(store: SampleStore) -> dict[str, Any] | None:
    from dataclasses import asdict

    from fastio.dataset.fast_dataset import FastDataset
    from fastio.measure.plan import held_epoch

    batch_size = 256
    reads = held_epoch(FastDataset(store), batch_size)
    return None if reads is None else {**asdict(reads), "batch_size": batch_size}
