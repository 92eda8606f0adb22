"""``create_store``: the writer of a new store of one file or of a set, and of one shard."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.files.local import check_address, identity_of, is_local
from fastio.store.folders import LocalFolder
from fastio.store.formats import shard_suffixes
from fastio.store.index.seal import Seal, read_seal
from fastio.store.listing import remove_stale
from fastio.store.sets.names import SIDECAR_SUFFIX
from fastio.store.sets.seal import SealedShards, ShardFiles, sealed_member
from fastio.store.sets.set_object import SetMember, SetObject, current_set, write_set
from fastio.store.write.atomic import PartialFile, exists, publish_file, publish_shard, sync_folder, writing
from fastio.store.write.locks import turn
from fastio.store.write.target import Target, begin_set_object, free_number, remove_replaced
from fastio.store.write.writer import FileWriter, SealedAlone, SealedWriter
from fastio.types.options import explains_names
from fastio.types.schema import Schema

__all__ = [
    "SingleOutput",
    "check_target",
    "create_shard",
    "create_store",
]


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
    target = Target.of(path, overwrite=overwrite)
    if target.is_set and not target.format.has_shards:
        others = " or ".join(shard_suffixes())
        raise StoreError(f"{path}: {target.format.name} stores are one file: drop the number, or pack to {others}")
    if not target.is_set and shard_bytes is not None:
        raise StoreError(f"{path}: a shard size needs a name with a number, e.g. name-%06d.tar")
    if shard_bytes is not None and (not isinstance(shard_bytes, int) or shard_bytes < 1):
        raise StoreError(f"{path}: expected a shard size in bytes, a whole number from 1 on, got {shard_bytes!r}")
    return target


# SetOutput: the shards of a set, each sealed alone under its final name, and at the end the set object.


class SetOutput:
    """
    A set that is written from front to back without a plan; see ``Output``. Only the set object has metadata.

    The shards take names that no file has, so an old set stays as it is until the new set object has replaced its set
    object: the one instant at which the set changes. Then the old shards go.
    """

    def __init__(self, target: Target, *, shard_bytes: int) -> None:
        self.shard_bytes = shard_bytes
        self._target = target
        self._file: PartialFile | None = None
        self._members: list[SetMember] = []  # those that are finished
        self._object, self._claim = begin_set_object(target)
        try:
            self._replaced = _identity(target.set_path)
            known = _readable_set(target.set_path)
            self._generation = 1 if known is None else known.generation + 1
            self._base = free_number(target, known)
        except BaseException as exc:
            try:
                self._object.discard()
            except StoreError as left:
                exc.add_note(str(left))
            finally:
                self._claim.release()
            raise

    def next_file(self) -> PartialFile:
        """See ``Output``."""
        self._file = PartialFile(self._target.shard(self._base + len(self._members)))
        return self._file

    def end_file(self, file: FileWriter) -> None:
        """See ``Output``."""
        seal = file.finish(b"{}", SealedAlone(0, len(self._members)))
        publish_shard(file.file)
        file.file.discard()
        self._members.append(sealed_member(Path(file.file.path).name, seal))
        self._file = None

    def commit(self, file: FileWriter, metadata: bytes) -> None:
        """See ``Output``."""
        self.end_file(file)
        self._write_object(metadata)
        path = self._target.set_path
        with turn(path):
            self._require_same_set()
            publish_file(self._object, replace=self._target.overwrite)
        if self._target.overwrite:
            remove_replaced(self._target, self._members)

    @property
    def is_published(self) -> bool:
        """See ``Output``."""
        return self._object.is_published

    def discard(self) -> None:
        """See ``Output``."""
        problems: list[StoreError] = []
        try:
            for remove in () if self.is_published else self._removals():
                try:
                    remove()
                except StoreError as exc:
                    problems.append(exc)
            try:
                self._object.discard()
            except StoreError as exc:
                problems.append(exc)
        finally:
            self._claim.release()
        if problems:
            raise problems[0]

    def _removals(self) -> Iterator[Callable[[], None]]:
        """Yield what removes each file of a set that will not be."""
        for member in self._members:
            yield partial(_unlink, str(self._target.folder / member.name))
        if self._file is not None:
            yield partial(_remove, self._file)

    def _write_object(self, metadata: bytes) -> None:
        with writing(self._target.path):
            sync_folder(self._target.folder)
        form, generation = self._target.format, self._generation
        shards = SealedShards(ShardFiles(LocalFolder(str(self._target.folder)), form), self._members)
        write_set(self._object, shards, self._members, form=form.name, generation=generation, metadata=metadata)

    def _require_same_set(self) -> None:
        """Raise StoreError if another set has come under the name since this writer began."""
        path = self._target.set_path
        if not self._target.overwrite and os.path.lexists(path):
            raise exists(path)
        if _identity(path) != self._replaced:
            raise StoreError(
                f"{path}: was replaced while this set was being packed: see which one you want, pack again"
            )


def _remove(file: PartialFile) -> None:
    """Remove a file of a set that will not be, under its final name, its hidden name, or both."""
    is_named = file.is_published
    file.discard()
    if is_named:
        _unlink(file.path)
        _unlink(file.partial)


def _unlink(path: str) -> None:
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"{path}: could not be removed ({exc.strerror}); no set lists it: remove it") from exc


def _identity(path: str) -> Mapping[str, int | str] | None:
    try:
        return identity_of(Path(path).lstat())
    except FileNotFoundError:
        return None


def _readable_set(path: str) -> SetObject | None:
    """Return the set object; None if there is none, or one that is damaged and can only be replaced."""
    try:
        return current_set(path)
    except (StoreCorrupt, StoreIncomplete):
        return None


# SingleOutput: a store of one file, or one shard that is sealed alone.


class SingleOutput:
    """
    One file under its final name once it is complete; see ``Output``.

    Of a shard that is sealed ``alone``, the folder is not looked at: sets have thousands of shards. One of the same
    seal that has the name already is as good.
    """

    shard_bytes = None

    def __init__(self, target: Target, *, alone: SealedAlone | None = None) -> None:
        self._target = target
        self._alone = alone
        self._file: PartialFile | None = None
        if alone is None:
            target.check()
            with writing(target.path):
                remove_stale(target.folder, target.pattern)

    def next_file(self) -> PartialFile:
        """See ``Output``."""
        self._file = PartialFile(self._target.path)
        return self._file

    def end_file(self, file: FileWriter) -> None:
        """There is only one."""
        raise AssertionError(file.file.path)

    def commit(self, file: FileWriter, metadata: bytes) -> None:
        """See ``Output``."""
        seal = file.finish(metadata, self._alone)
        if self._alone is None:
            self._target.check_free()
        elif not self._target.overwrite and self._is_there(seal):
            return
        publish_file(file.file, replace=self._target.overwrite)
        if self._alone is None and self._target.overwrite:  # those of what had the name before
            with contextlib.suppress(OSError):
                Path(self._target.path + SIDECAR_SUFFIX).unlink()

    def _is_there(self, seal: Seal) -> bool:
        """Whether somebody else has made the same shard meanwhile."""
        other = read_seal(self._target.path, self._target.format.seal_at)
        return other is not None and other.pack() == seal.pack()

    @property
    def is_published(self) -> bool:
        """See ``Output``."""
        return self._file is not None and self._file.is_published

    def discard(self) -> None:
        """See ``Output``."""
        if self._file is not None:
            self._file.discard()
