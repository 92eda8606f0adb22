"""A small set of shards in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from fastio.store import FORMATS, create_shard
from fastio.store.sets.seal import seal_set
from tests.store.build import LABELLED, make_batch

__all__ = ["PLAN", "write_set"]

PLAN = 5
_METADATA = b'{"classes": ["cat", "dog"]}'


def write_set(
    path: Path, keys: list[str], *, plan: int = PLAN, metadata: bytes = b'{"classes": ["cat", "dog"]}'
) -> str:
    """A set of a shard for each key, whose value is the key."""
    path.mkdir(exist_ok=True)
    names = [f"x-{number:06d}.tar" for number in range(len(keys))]
    for number, (key, name) in enumerate(zip(keys, names, strict=True)):
        with create_shard(path / name, LABELLED, plan=plan, number=number) as writer:
            writer.append(make_batch([key], [key.encode()], [number % 2]))
    seal_set(str(path / "x.fastio-set"), names, FORMATS["tar"], metadata=metadata)
    return str(path / "x.fastio-set")
