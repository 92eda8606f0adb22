"""SinkTarget: where a Sink writes: names for the shards of its tasks, the set at the end, and what must go then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from fastio.errors import StoreError, StoreNotFound
from fastio.ray.leftovers import remove_partials
from fastio.ray.rolling_shards import WrittenShard
from fastio.store import FORMATS, SampleWriter
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.format import Format
from fastio.store.generations import remove_replaced
from fastio.store.seal import find_seal
from fastio.store.sealed import Shard, bytes_from
from fastio.store.set_names import SET_SUFFIX, set_path
from fastio.store.set_object import SetMember, SetObject, read_set
from fastio.store.sets import read_member, seal_set
from fastio.store.shard_destination import ShardDestination
from fastio.store.store_folder import StoreFolder
from fastio.store.target import target_format
from fastio.store.turns import claimed
from fastio.store.write_target import Target
from fastio.types.schema import Schema
from fastio.types.units import counted

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
        if not target.names.is_set:
            raise StoreError(f"{path}: Ray writes shards: name them like train-%06d{form.suffixes[0]}")
        with target._claimed():
            current = target.check()
        listed = () if current is None else current.members
        numbers = map(target.names.number_of, (*target._taken(), *(member.name for member in listed)))
        return replace(
            target,
            first=max((number for number in numbers if number is not None), default=-1) + 1,
            generation=1 if current is None else current.generation + 1,
        )

    @property
    def form(self) -> Format:
        """The format of the shards."""
        return FORMATS[self.format_name]

    @property
    def names(self) -> Target:
        """The names of the shards."""
        return Target(self.path, self.form, self.overwrite)

    def name(self, number: int) -> str:
        """Return the name of a shard in its folder."""
        return Path(self.names.shard(number)).name

    def check(self) -> SetObject | None:
        """Return the set that is there, which the new one will replace. Raises StoreError if it must not."""
        current = self._current()
        taken = self._taken()
        if self.overwrite:
            return current
        if current is not None:
            raise StoreError(f"{current.path}: exists; choose another name, or overwrite=True")
        if taken:
            raise StoreError(
                f"{self.path}: {counted(len(taken), 'shard')} without a set object, the first {taken[0]}: an earlier "
                "run was killed before it could make the set: remove them, or replace them with overwrite=True"
            )
        return None

    @contextmanager
    def opened(self, *, shard_bytes: int) -> Iterator[TaskFolder]:
        """Give a task what it writes shards with."""
        folder = self._folder()
        with ShardDestination(folder, shard_bytes=shard_bytes) as destination:
            yield TaskFolder(self, folder, destination)

    def seal(self, shards: Sequence[WrittenShard], metadata: bytes) -> Sequence[SetMember]:
        """Make the set of these shards, in this order, then remove what it replaces and what else this run left."""
        with self._claimed():
            return self._seal(shards, metadata)

    def _seal(self, shards: Sequence[WrittenShard], metadata: bytes) -> Sequence[SetMember]:
        folder = self._folder()
        before = self._current()
        sealed = seal_set(
            set_path(self.path),
            [shard.name for shard in shards],
            self.form,
            metadata=metadata,
            generation=self.generation,
            replace=self.generation > 1,
            options=self.options,
            opened=[self._opened(folder, shard) for shard in shards],
        )
        self.remove_run(keep=sealed.members)
        if self.overwrite:
            self._remove_replaced(folder, sealed, before)
        return sealed.members

    def remove_run(self, keep: Sequence[SetMember] = ()) -> None:
        """Remove what this run has written, but for the shards to keep. Raises StoreError that names what stays."""
        folder = self._folder()
        if is_local(self.path):
            remove_partials(self.names)
        for name in sorted(set(self._taken()) - {member.name for member in keep}):
            if self._run_of(folder, name) == self.run:
                folder.remove(name)

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Raise StoreError if another process packs this set on a disk; until the block ends, nobody else does."""
        if is_local(self.path):
            replace(self.names, overwrite=True).check()
        with claimed(set_path(self.path)) if is_local(self.path) else nullcontext():
            yield

    def _opened(self, folder: StoreFolder, shard: WrittenShard) -> tuple[Shard, SetMember]:
        """Open a shard of this run. Raises StoreError if another file has its name."""
        opened, member = read_member(folder, shard.name, self.form)
        if (member.plan, member.count) != (self.run, shard.count):
            raise StoreError(
                f"{folder.full(shard.name)}: expected {shard.count} samples of this run, got {member.count} of "
                f"{'this' if member.plan == self.run else 'another'} one: another program writes here too; write "
                "again, to another name"
            )
        return opened, member

    def _remove_replaced(self, folder: StoreFolder, sealed: SetObject, before: SetObject | None) -> None:
        """Remove shards that the new set has replaced, unless another set of the folder may list them."""
        if is_local(self.path):
            remove_replaced(self.names, sealed.members)
            return
        sets = [name for name in folder.entries() if name.endswith(SET_SUFFIX)]
        for member in () if before is None or len(sets) > 1 else before.members:
            if self.names.number_of(member.name) is not None:
                folder.remove(member.name)

    def _run_of(self, folder: StoreFolder, name: str) -> int | None:
        """Return the run, or the plan, that a shard was sealed for; None if it is not a whole shard."""
        try:
            file = folder.open(name)
            try:
                return find_seal(file.path, file.size, partial(bytes_from, file), self.form.seal_at).plan
            finally:
                file.release()
        except StoreError:
            return None

    def _current(self) -> SetObject | None:
        try:
            return read_set(self._folder().open(Path(set_path(self.path)).name), with_index=False)
        except StoreNotFound:
            return None

    def _taken(self) -> list[str]:
        """Return the names in the folder that the pattern stands for, sorted."""
        return [name for name in self._folder().entries() if self.names.number_of(name) is not None]

    def _folder(self) -> StoreFolder:
        return folder_of(self.path, self.options)[0]


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
