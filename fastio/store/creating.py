"""``create_store``: the writer of a new store, and of one shard of a set."""

from __future__ import annotations

import os

from fastio.errors import StoreError
from fastio.store.file_writer import SealedAlone
from fastio.store.files.local import check_address, is_local
from fastio.store.formats import shard_suffixes
from fastio.store.set_output import SetOutput
from fastio.store.single_output import SingleOutput
from fastio.store.target import target_format
from fastio.store.write_target import Target
from fastio.store.writer import SealedWriter
from fastio.types.option_names import explains_names
from fastio.types.schema import Schema

__all__ = ["check_target", "create_shard", "create_store"]

_SHARD_BYTES = 1 << 30


@explains_names()
def create_store(
    path: str | os.PathLike[str], schema: Schema, *, overwrite: bool = False, shard_bytes: int | None = None
) -> SealedWriter:
    """
    Return a writer for a new store; its suffix names the format.

    Shards are written to ``name-%06d.tar`` (or ``%d``), each up to ``shard_bytes`` (default: 1 GiB) of samples, or a
    single larger sample, and have their names as they fill; the set object, which makes a set of them, comes last. An
    existing store is replaced only with ``overwrite``, and only once the new store is complete.
    """
    target = _target(os.fspath(path), overwrite=overwrite, shard_bytes=shard_bytes)
    if not is_local(target.path):
        raise StoreError(
            f"{target.path}: what is streamed (text, fastio.Writer, datasets) is packed on this machine: choose a "
            "local name, and pack that store to the URL"
        )
    output = SetOutput(target, shard_bytes=shard_bytes or _SHARD_BYTES) if target.is_set else SingleOutput(target)
    return SealedWriter(target.path, target.format, schema, output)


def create_shard(
    path: str | os.PathLike[str], schema: Schema, *, plan: int, number: int, overwrite: bool = False
) -> SealedWriter:
    """
    Return a writer for one shard of a set, a file of its own that is sealed alone; ``sets.seal_set`` makes the set.

    ``plan`` (0 to 2**64 - 1) says which division of which source the shard belongs to, ``number`` its place there.
    """
    target = _target(os.fspath(path), overwrite=overwrite, shard_bytes=None)
    if not overwrite:
        target.check_free()
    return SealedWriter(target.path, target.format, schema, SingleOutput(target, alone=SealedAlone(plan, number)))


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False, shard_bytes: int | None = None) -> None:
    """Raise StoreError if ``create_store`` would refuse these arguments; changes nothing."""
    _target(os.fspath(path), overwrite=overwrite, shard_bytes=shard_bytes).check()


def _target(path: str, *, overwrite: bool, shard_bytes: int | None) -> Target:
    check_address(path)
    target = Target(path, target_format(path), overwrite)
    if target.is_set and not target.format.has_shards:
        others = " or ".join(shard_suffixes())
        raise StoreError(f"{path}: {target.format.name} stores are one file: drop the number, or pack to {others}")
    if not target.is_set and shard_bytes is not None:
        raise StoreError(f"{path}: a shard size needs a name with a number, e.g. name-%06d.tar")
    if shard_bytes is not None and (not isinstance(shard_bytes, int) or shard_bytes < 1):
        raise StoreError(f"{path}: expected a shard size in bytes, a whole number from 1 on, got {shard_bytes!r}")
    return target
