"""Checks that no key comes twice in the shards of a set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SchemaError
from fastio.store.sealed import Shard

__all__ = ["check_keys", "ended_keys"]


def check_keys(path: str, shards: Sequence[Shard]) -> None:
    """
    Raise SchemaError that names the key and both shards if a key comes twice.

    Keys that ascend from shard to shard are unique by that; others take up to 46 bytes of memory each meanwhile.
    """
    keys, is_rising, done = _native.KeySet(), True, 0
    for number, shard in enumerate(shards):
        if shard.count == 0:
            continue
        if is_rising and keys.rise(_joined(shard)):
            continue
        if is_rising:
            is_rising, done = False, 0
        for each in range(done, number + 1):
            twice = keys.insert(_joined(shards[each])) if shards[each].count else None
            if twice is not None:
                raise _repeated(path, shards[: each + 1], twice)
        done = number + 1


def ended_keys(shard: Shard) -> NDArray[np.uint8]:
    """Return the keys of a shard in UTF-8, each ended by NUL."""
    if shard.key_starts is None:  # of one width, padded with NUL
        joined = b"".join(bytes(key) + b"\0" for key in shard.keys)
        return np.frombuffer(joined, np.uint8)
    return np.concatenate((shard.keys, np.zeros(1, np.uint8))) if shard.count else np.empty(0, np.uint8)


def _joined(shard: Shard) -> bytes:
    return ended_keys(shard)[:-1].tobytes()


def _repeated(path: str, shards: Sequence[Shard], position: int) -> SchemaError:
    """Return the error for the key at this position of the last shard, which it or another shard has already."""
    last = shards[-1]
    keys = _joined(last).split(b"\0")
    key = keys[position]
    before = next((shard for shard in shards[:-1] if shard.count and key in _joined(shard).split(b"\0")), None)
    where = f"twice in {last.path}" if before is None else f"in {before.path} and in {last.path}"
    name = key.decode("utf-8", "surrogateescape")
    return SchemaError(f"{path}: key {name!r} is {where}; keys must be unique: pack one of them with other keys")
