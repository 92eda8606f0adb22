"""SinkTarget: where a Sink writes: names for the shards of its tasks, the set at the end, and what must go then."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from fastio.errors import StoreError, StoreNotFound
from fastio.ray.rolling_shards import WrittenShard
from fastio.store import FORMATS, SampleWriter
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import StoreFolder, folder_of
from fastio.store.format import Format
from fastio.store.seal import Seal, find_seal
from fastio.store.sealed import bytes_from
from fastio.store.set_object import SetMember, SetObject, read_set
from fastio.store.sets import seal_set, set_path
from fastio.store.shard_destination import ShardDestination
from fastio.store.target import target_format
from fastio.store.write_target import Target
from fastio.types.schema import Schema

__all__ = ["SinkTarget", "TaskFolder"]

_TASKS = 1_000_000  # numbers of tasks; shard j of task t is number t + j * _TASKS


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """
    The set that one run writes: what the driver checks, and what each task needs to name its shards.

    ``run`` stands in the seals of its shards as their plan. File numbers begin with ``first``: 0, or beyond those that
    are taken if a set is being replaced.
    """

    path: str
    format_name: str
    overwrite: bool
    options: RemoteOptions
    run: int
    first: int = 0
    generation: int = 1

    @classmethod
    def of(cls, path: str, *, overwrite: bool, options: RemoteOptions, run: int) -> Self:
        """Return the target of a new run. Raises StoreError if nothing can be written there."""
        form = target_format(path)
        everywhere = os.path.abspath(path) if is_local(path) else path  # noqa: PTH100 - workers have other folders
        target = cls(everywhere, form.name, overwrite, options, run)
        if not target._names.is_set:
            raise StoreError(f"{path}: Ray writes shards: name them like train-%06d{form.suffixes[0]}")
        current = target.check()
        numbers = [number for name in target._taken() if (number := target._number_of(name)) is not None]
        return replace(
            target,
            first=max(numbers, default=-1) + 1,
            generation=1 if current is None else current.generation + 1,
        )

    @property
    def form(self) -> Format:
        """The format of the shards."""
        return FORMATS[self.format_name]

    def check(self) -> SetObject | None:
        """Return the set that is there, which the new one will replace. Raises StoreError if it must not."""
        folder, _ = self._folder()
        current = self._current(folder)
        taken = self._taken()
        if not self.overwrite:
            if current is not None:
                raise StoreError(f"{current.path}: exists; choose another name, or overwrite=True")
            if taken:
                raise StoreError(
                    f"{self.path}: {len(taken)} shards are there without a set object, the first {taken[0]}: an "
                    "earlier run was killed before it could make the set: remove them, or replace them with "
                    "overwrite=True"
                )
        return current

    @contextmanager
    def opened(self, *, shard_bytes: int) -> Iterator[TaskFolder]:
        """Give a task what it writes shards with."""
        folder, _ = self._folder()
        with ShardDestination(folder, shard_bytes=shard_bytes) as destination:
            yield TaskFolder(self, folder, destination)

    def name(self, number: int) -> str:
        """Return the name of a shard in its folder."""
        return os.path.basename(self._names.shard(number))  # noqa: PTH119 - of a URL, too

    def seal(self, shards: Sequence[WrittenShard], metadata: bytes) -> Sequence[SetMember]:
        """Make the set of these shards, in this order, then remove what it replaces and what else this run left."""
        folder, _ = self._folder()
        before = self._current(folder) if self.overwrite else None
        for shard in shards:
            self._check_ours(folder, shard)
        sealed = seal_set(
            set_path(self.path),
            [shard.name for shard in shards],
            self.form,
            metadata=metadata,
            generation=self.generation,
            replace=self.overwrite,
            options=self.options,
        )
        self.remove_run([member.name for member in sealed.members])
        for member in () if before is None else before.members:
            folder.remove(member.name)
        return sealed.members

    def remove_run(self, keep: Sequence[str]) -> None:
        """Remove the shards of this run, but for those to keep. Raises StoreError that names what stays."""
        folder, _ = self._folder()
        for name in sorted(set(self._taken()) - set(keep)):
            if self._run_of(folder, name) == self.run:
                folder.remove(name)

    def _check_ours(self, folder: StoreFolder, shard: WrittenShard) -> None:
        seal = self._seal_of(folder, shard.name)
        if (seal.plan, seal.count) != (self.run, shard.count):
            raise StoreError(
                f"{folder.full(shard.name)}: expected {shard.count} samples of this run, got {seal.count} of "
                f"{'this' if seal.plan == self.run else 'another'} one: another program writes here too; write again, "
                "to another name"
            )

    def _seal_of(self, folder: StoreFolder, name: str) -> Seal:
        file = folder.open(name)
        try:
            return find_seal(file.path, file.size, partial(bytes_from, file), self.form.seal_at)
        finally:
            file.release()

    def _run_of(self, folder: StoreFolder, name: str) -> int | None:
        """Return the run, or the plan, that a shard was sealed for; None if it is not a whole shard."""
        try:
            return self._seal_of(folder, name).plan
        except StoreError:
            return None

    def _current(self, folder: StoreFolder) -> SetObject | None:
        try:
            return read_set(folder.open(os.path.basename(set_path(self.path))))  # noqa: PTH119
        except StoreNotFound:
            return None

    def _taken(self) -> list[str]:
        """Return the names in the folder that the pattern stands for, sorted."""
        folder, _ = self._folder()
        return [name for name in folder.entries() if self._number_of(name) is not None]

    def _number_of(self, name: str) -> int | None:
        first = re.compile(r"%(?:0\d+)?d").search(os.path.basename(self.path))  # noqa: PTH119
        assert first is not None
        digits = name[first.start() : len(name) - (len(os.path.basename(self.path)) - first.end())]  # noqa: PTH119
        return int(digits) if digits.isdecimal() and self.name(int(digits)) == name else None

    def _folder(self) -> tuple[StoreFolder, str]:
        return folder_of(self.path, self.options)

    @property
    def _names(self) -> Target:
        return Target(self.path, self.form, self.overwrite)


class TaskFolder:
    """Writes the shards of one task into the folder of the set."""

    def __init__(self, target: SinkTarget, folder: StoreFolder, destination: ShardDestination) -> None:
        self._target = target
        self._folder = folder
        self._destination = destination
        self._slot = 0  # the next number of this task that may be free

    def begin(self, task: int, schema: Schema, piece: int) -> tuple[str, SampleWriter]:
        """Return the name and the writer of a shard; names that an earlier attempt of the task has left stay."""
        name = self._free_name(task)
        number = task + piece * _TASKS
        return name, self._destination.writer(name, schema, plan=self._target.run, number=number)

    def wait(self) -> None:
        """Return when all finished shards are in the folder. Raises StoreError for one that could not be uploaded."""
        self._destination.wait()

    def remove(self, shards: Sequence[WrittenShard]) -> None:
        """Remove finished shards of this task."""
        self._destination.close()
        for shard in shards:
            self._folder.remove(shard.name)

    def _free_name(self, task: int) -> str:
        while True:
            name = self._target.name(self._target.first + task + self._slot * _TASKS)
            self._slot += 1
            if self._folder.etag(name) is None:
                return name
