"""Sets as they were packed before set objects: version 1 of the seal, of which each shard knows the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastio.store import format_of, open_store
from fastio.store.formats import FORMATS
from fastio.store.index.seal import read_seal, set_checksum
from fastio.store.sets.names import set_path


def make_version_1(pattern: str | Path) -> Sequence[Path]:
    """Seal the shards of a set anew, all together, and remove the set object. Returns the shards."""
    with open_store(pattern) as store:
        paths = [Path(path) for path in store.shard_paths]
    seal_at = FORMATS[format_of(pattern)].seal_at
    seals = [seal for path in paths if (seal := read_seal(str(path), seal_at)) is not None]
    crc = set_checksum((seal.count, seal.file_size, seal.file_crc) for seal in seals)
    total = sum(seal.count for seal in seals)
    for number, (path, seal) in enumerate(zip(paths, seals, strict=True)):
        sealed = replace(seal, set_count=total, shard=number, shards=len(seals), set_crc=crc, plan=0)
        with path.open("r+b") as file:
            file.seek(seal.seal_start)
            file.write(sealed.pack())
    Path(set_path(str(pattern))).unlink()
    return paths
