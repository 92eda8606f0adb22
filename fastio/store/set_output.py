"""SetOutput: the shards of a set, each sealed alone under its final name, and at the end the set object."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.atomic import PartialFile, exists, sync_folder, writing
from fastio.store.file_writer import FileWriter, SealedAlone
from fastio.store.files.local import identity_of
from fastio.store.folders import LocalFolder
from fastio.store.generations import begin_set_object, free_number, remove_replaced
from fastio.store.publish import publish_file, publish_shard
from fastio.store.seal import Seal
from fastio.store.set_lookup import current_set
from fastio.store.set_object import SetMember, SetObject, write_set
from fastio.store.sets import read_member
from fastio.store.turns import turn
from fastio.store.write_target import Target

__all__ = ["SetOutput"]


class SetOutput:
    """
    A set that is written from front to back without a plan; see ``Output``. Only the set object has metadata.

    The shards take names that no file has, so an old set stays as it is until the new set object has replaced its set
    object: the one instant at which the set changes. Then the old shards go.
    """

    def __init__(self, target: Target, *, shard_bytes: int) -> None:
        self.shard_bytes = shard_bytes
        self._target = target
        self._files: list[PartialFile] = []
        self._seals: list[Seal] = []
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
        file = PartialFile(self._target.shard(self._base + len(self._files)))
        self._files.append(file)
        return file

    def end_file(self, file: FileWriter) -> None:
        """See ``Output``."""
        self._seals.append(file.finish(b"{}", SealedAlone(0, len(self._seals))))
        publish_shard(file.file)
        file.file.discard()

    def commit(self, file: FileWriter, metadata: bytes) -> None:
        """See ``Output``."""
        self.end_file(file)
        members = self._write_object(metadata)
        path = self._target.set_path
        with turn(path):
            self._require_same_set()
            publish_file(self._object, replace=self._target.overwrite)
        if self._target.overwrite:
            remove_replaced(self._target, members)

    @property
    def is_published(self) -> bool:
        """See ``Output``."""
        return self._object.is_published

    def discard(self) -> None:
        """See ``Output``."""
        problems: list[StoreError] = []
        try:
            for file in () if self.is_published else self._files:
                try:
                    _remove(file)
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

    def _write_object(self, metadata: bytes) -> list[SetMember]:
        folder, opened = LocalFolder(str(self._target.folder)), []
        with writing(self._target.path):
            sync_folder(self._target.folder)
        for file, seal in zip(self._files, self._seals, strict=True):
            shard, member = read_member(folder, Path(file.path).name, self._target.format)
            if shard.seal is None or shard.seal.pack() != seal.pack():
                raise StoreError(f"{file.path}: was replaced while its set was being packed: pack again")
            opened.append((shard, member))
        members = [member for _, member in opened]
        form, generation = self._target.format.name, self._generation
        shards = [shard for shard, _ in opened]
        write_set(self._object, shards, members, form=form, generation=generation, metadata=metadata)
        return members

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
        with _removing(file.path):
            Path(file.path).unlink(missing_ok=True)
        with _removing(file.partial):
            Path(file.partial).unlink(missing_ok=True)


@contextlib.contextmanager
def _removing(path: str) -> Iterator[None]:
    try:
        yield
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
