"""PlannedSet: the set that a plan makes: which of its shards are there, packing the others, sealing."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fastio import _native
from fastio.converters.packing.append import base_of_appended, check_appended, is_appended
from fastio.converters.packing.options import PackOptions, Progress
from fastio.converters.packing.pipeline import ShardChunk, shard_chunks, threads
from fastio.converters.packing.plan import PackPlan, StreamPlan
from fastio.converters.packing.record import PackRecord, chunk_bytes, miscounted, stop_at
from fastio.converters.packing.shards import PlannedShard, changed, is_foreign, open_shard, shard_metadata
from fastio.converters.pictures.counts import LossyMasks
from fastio.converters.sources.source import Source, StreamedSource, is_streamed
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.files.local import is_local
from fastio.store.folders import folder_of
from fastio.store.index.sealed import seal_of
from fastio.store.protocol import SampleWriter
from fastio.store.sets.names import NumberedName, set_path
from fastio.store.sets.seal import ShardFiles
from fastio.store.sets.set_object import SetObject, read_set
from fastio.store.store_folder import StoreFolder, other_version
from fastio.store.write.atomic import exists, undisturbed, writing
from fastio.store.write.destination import ShardDestination
from fastio.store.write.locks import Claim, turn
from fastio.store.write.target import Target, base_number, listed_by_others, prepare_set
from fastio.types.units import counted

__all__ = [
    "PlannedSet",
    "set_object_at",
    "warn_of_newer_files",
]


@dataclass(frozen=True)
class PlannedSet:
    """
    The files that the shards of a plan are, or will be.

    Shard k is file number ``base + k`` of the target. ``current`` is the set object that is there, and ``is_sealed``
    says whether it is that of this plan. Nothing that another set lists is touched. Whole shards of another plan that
    no set lists are replaced on this machine only: in an object store, somebody may be packing them now.
    """

    plan: PackPlan | StreamPlan
    source: Source | StreamedSource
    target: Target
    folder: StoreFolder
    base: int
    current: SetObject | None
    present: frozenset[str]  # names that were there at the beginning
    options: PackOptions

    @classmethod
    @contextmanager
    def begin(
        cls, plan: PackPlan | StreamPlan, source: Source | StreamedSource, out: str, options: PackOptions
    ) -> Iterator[Self]:
        """
        Look at what is there, and prepare the folder. Until the block ends, nobody packs this set on this machine (or
        one that shares the folder) but those who go on with the same plan, and parts of it.

        Raises StoreError if this must not be packed to ``out``: names are taken, another process is packing it, or
        shards there belong to another plan.
        """
        target = Target.of(out, overwrite=options.overwrite)
        goes_on = options.resume or options.part is not None
        with ExitStack() as held:
            if is_local(out):
                lenient = replace(target, overwrite=True)
                lenient.check()
                with writing(out), turn(target.set_path):
                    planned = cls._at(plan, source, target, options)
                    work = f"{plan.digest:016x}-{planned.base}" if goes_on else ""
                    with undisturbed():
                        held.callback(Claim(target.set_path, work).release)
                    prepare_set(lenient if goes_on or options.append else target)
            else:
                planned = cls._at(plan, source, target, options)
            if options.append:
                planned._check_append(goes_on=goes_on)
            elif not options.overwrite and not planned.is_sealed:
                planned._check_free(goes_on=goes_on)
            yield planned

    @classmethod
    def _at(
        cls, plan: PackPlan | StreamPlan, source: Source | StreamedSource, target: Target, options: PackOptions
    ) -> Self:
        """Return the set with what is there now."""
        folder, _ = folder_of(target.path, options.remote)
        current, present = set_object_at(folder, target), frozenset(folder.entries())
        if options.append:
            base = base_of_appended(target, current, plan)
        elif options.resume or options.part is not None:
            base = _base_begun(plan, target, folder, current, present)
        else:
            base = base_number(target, _taken(target, current, present), plan.count or sys.maxsize)
        return cls(plan, source, target, folder, base, current, present, options)

    @property
    def is_sealed(self) -> bool:
        """Whether the set object there lists the shards of this plan, under the names that they have here."""
        if self.options.append:
            return self.current is not None and is_appended(self.current, self.plan)
        return (
            self.current is not None
            and _lists(self.current, self.plan)
            and _first_number(self.target, self.current) == self.base
        )

    @property
    def divided(self) -> tuple[PackPlan, Source]:
        """The plan and its source, whose shards are known; of a stream, see ``StreamShards``."""
        assert isinstance(self.plan, PackPlan)
        assert not is_streamed(self.source)
        return self.plan, self.source

    def name(self, number: int) -> str:
        """Return the name of the file that is a shard of the plan."""
        return self._numbered.of(self.base + number)

    @cached_property
    def files(self) -> ShardFiles:
        """The shards that are there."""
        return ShardFiles(self.folder, self.target.format)

    @cached_property
    def _numbered(self) -> NumberedName:
        """The name of all shards."""
        numbered = self.target.numbered
        assert numbered is not None, "a set"
        return numbered

    def numbers_there(self, names: Collection[str] | None = None) -> list[int]:
        """Return the numbers of shards whose names are among ``names``, by default those there at the beginning."""
        found = map(self.target.number_of, self.present if names is None else names)
        numbers = sorted(number - self.base for number in found if number is not None and number >= self.base)
        return [number for number in numbers if self.plan.count is None or number < self.plan.count]

    def existing(self, numbers: Iterable[int], names: Collection[str] | None = None) -> dict[int, PlannedShard]:
        """
        Return those of these shards that are there and whole, by number; one that is damaged is as good as missing.

        ``names`` are those in the folder, by default those that were there at the beginning.

        Raises StoreError for a file that is no shard of this plan, unless it may be replaced.
        """
        names = self.present if names is None else names
        shards = {number: self._existing(number) for number in numbers if self.name(number) in names}
        return {number: shard for number, shard in shards.items() if shard is not None}

    def _existing(self, number: int) -> PlannedShard | None:
        name = self.name(number)
        try:
            shard = open_shard(self.files, name)
        except StoreCorrupt:
            return None
        except StoreIncomplete:
            if not self.options.overwrite and is_foreign(self.folder, name, self.target.format):
                raise exists(self.folder.full(name)) from None
            return None
        except StoreError:
            if self.options.overwrite:
                return None
            raise
        if self._is_of_plan(shard, number):
            return shard
        if self.options.overwrite and is_local(self.target.path):
            return None
        raise changed(self.folder.full(name), shard, self.plan, self.source, self._of_plan(shard))

    def _is_of_plan(self, shard: PlannedShard, number: int) -> bool:
        """Whether it is this shard of the plan, made of the same contents as far as the source's checksums tell."""
        same = (shard.member.plan, shard.number) == (self.plan.digest, number)
        return same and self.plan.has_contents_of(shard.plan)

    def _of_plan(self, shard: PlannedShard) -> Iterator[PlannedShard]:
        """Yield the shards there that are of the plan of ``shard``."""
        names = map(self.name, self.numbers_there())
        return (each for each in self._whole(names) if each.member.plan == shard.member.plan)

    def pack(self, numbers: Sequence[int], progress: Progress | None = None) -> Generator[int, None, None]:
        """
        Pack these shards, and yield the number of each when it is finished: under its name, on the disk or uploaded.

        While the disk or the object store takes a shard, the next one is packed. Whoever packs the same shard at the
        same time, or did before, does no harm: the bytes are the same. Raises SourceError for a bad sample unless
        ``on_error`` is "skip".
        """
        plan, source = self.divided
        shards = (plan.samples_of(number) for number in numbers)
        with (
            ShardDestination(self.folder, shard_bytes=self.plan.record["shard_size"]) as destination,
            closing(_native.ThreadPool(threads(self.options.jobs))) as pool,
            closing(shard_chunks(source, shards, plan.stages, pool, jump=plan.jump)) as chunks,
            ThreadPoolExecutor(1, "fastio-shard") as closer,
        ):
            ending: Future[int] | None = None
            closed: list[int] = []  # but not yielded yet
            try:
                for number in numbers:
                    writer, metadata = self._write_shard(number, chunks, destination, progress)
                    last, ending = ending, None
                    try:
                        if last is not None:
                            closed.append(last.result())
                        finished = self.finished(closed, destination)
                        ending = closer.submit(self.close, writer, metadata, number)
                    except BaseException:
                        writer.abort()
                        raise
                    yield from finished
                if ending is not None:
                    closed.append(ending.result())
                    ending = None
                destination.wait()
            except Exception:  # whoever counts or removes what was made must learn of these, too
                if ending is not None and ending.exception() is None:
                    closed.append(ending.result())
                destination.join()
                yield from self.finished(closed, destination)
                raise
            yield from closed

    def finished(self, closed: list[int], destination: ShardDestination) -> list[int]:
        """Take the shards that are in the folder from those that were closed."""
        finished = [number for number in closed if destination.is_finished(self.name(number))]
        closed[:] = [number for number in closed if number not in finished]
        return finished

    def _write_shard(
        self,
        number: int,
        chunks: Generator[ShardChunk, None, None],
        destination: ShardDestination,
        progress: Progress | None,
    ) -> tuple[SampleWriter, dict[str, Any]]:
        """Write the samples of a shard; return its writer, still open, and the metadata to close it with."""
        plan, source = self.divided
        name, record = self.name(number), PackRecord(LossyMasks(source.schema))
        replaces = name in self.present  # damaged, or of a set that was never finished
        with ExitStack() as undo:
            writer = destination.writer(name, plan.schema, plan=plan.digest, number=number, overwrite=replaces)
            undo.enter_context(writer)
            for each in chunks:
                if each.chunk.problems and self.options.on_error == "raise":
                    raise stop_at(source, each.chunk.problems[0])
                record.stage = each.stage
                if each.chunk.batch.keys:
                    writer.append(each.chunk.batch)
                    if progress is not None:
                        progress(len(each.chunk.batch.keys), chunk_bytes(each.chunk))
                record.add(each.chunk)
                if each.is_last:
                    break
            expected = len(plan.samples_of(number))
            if record.samples + len(record.skipped) != expected:
                raise miscounted(source, expected=expected, packed=record.samples, skipped=len(record.skipped))
            undo.pop_all()
        return writer, shard_metadata(plan, number, source, record)

    def close(self, writer: SampleWriter, metadata: dict[str, Any], number: int) -> int:
        """
        Seal a shard, give it its name, and return its number; one that someone else has made meanwhile is as good.

        Uploads see to that themselves: an error may be that of the shard before.
        """
        try:
            with self._replacing(writer, number) if self.name(number) in self.present else nullcontext():
                writer.close(metadata)
        except StoreError:
            if not is_local(self.folder.path) or not self._is_twin(number):
                raise
        return number

    @contextmanager
    def _replacing(self, writer: SampleWriter, number: int) -> Iterator[None]:
        """Let nobody make a set of the file that a shard replaces, on this machine. Raises StoreError."""
        with ExitStack() as held:
            try:
                if is_local(self.target.path):
                    with writing(self.target.path):
                        held.enter_context(turn(self.target.set_path))
                self._require_unused(number)
            except BaseException:
                writer.abort()
                raise
            yield

    def _require_unused(self, number: int) -> None:
        """Raise StoreError if the set that is there now lists the file that a shard would replace, as it is."""
        current, name = set_object_at(self.folder, self.target), self.name(number)
        listed = None if current is None else next((each for each in current.members if each.name == name), None)
        if listed is None:
            return
        try:
            _, there = self.files.read(name)
        except StoreError:
            return  # missing or damaged
        if there == listed:
            raise other_version(self.folder.full(name))

    def _is_twin(self, number: int) -> bool:
        """Whether someone else gave the name to the same shard meanwhile."""
        try:
            shard = open_shard(self.files, self.name(number))
        except StoreError:
            return False
        return self._is_of_plan(shard, number)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove shards that this run has made, but for those that a set lists by now."""
        try:
            current = set_object_at(self.folder, self.target)
        except StoreError:
            return  # what it lists is not known; the error that brought us here is the one to tell
        listed = set() if current is None else {member.name for member in current.members}
        for number in numbers:
            if self.name(number) not in listed:
                self.folder.remove(self.name(number))

    def _check_free(self, *, goes_on: bool) -> None:
        """Raise StoreError if another set is there, or, for a pack from the beginning, shards that no set lists."""
        if self.current is not None:
            if goes_on:
                self._check_same_plan([member.name for member in self.current.members])
            raise exists(self.current.path)
        names = [name for name in sorted(self.present) if self.target.number_of(name) is not None]
        if not names:
            return
        if goes_on:
            self._check_same_plan(names)
        else:
            raise StoreError(
                f"{self.target.path}: {_are_there(len(names))} under the names of its shards, e.g. "
                f"{names[0]}, and no set object: go on with --resume, or start anew with --overwrite"
            )

    def _check_append(self, *, goes_on: bool) -> None:
        """Raise StoreError or SchemaError if the source cannot be appended, or if that was interrupted before."""
        assert self.current is not None, "base_of_appended has looked"
        if self.is_sealed:
            if goes_on:
                return
            raise StoreError(f"{self.target.path}: {self.source.path} was appended already: there is nothing to add")
        check_appended(self.current, self.plan, self.source, self.options.remote)
        names = [*map(self.name, self.numbers_there())]
        if goes_on:
            self._check_same_plan(names)
        elif names:
            raise StoreError(
                f"{self.target.path}: {_are_there(len(names))} that the set does not list, e.g. "
                f"{names[0]}, perhaps of an append that was interrupted: go on with --append --resume, or remove them"
            )

    def _check_same_plan(self, names: Sequence[str]) -> None:
        """Raise StoreError if the first whole shard there, perhaps of another part, belongs to another plan."""
        shards = self._whole(names)
        first = next(shards, None)
        if first is not None and not (first.member.plan == self.plan.digest and self.plan.has_contents_of(first.plan)):
            others = (each for each in shards if each.member.plan == first.member.plan)
            raise changed(self.folder.full(first.member.name), first, self.plan, self.source, others)

    def _whole(self, names: Iterable[str]) -> Iterator[PlannedShard]:
        """Yield the shards that can be opened; others are checked when it is their turn to be packed."""
        for name in names:
            with suppress(StoreError):
                yield open_shard(self.files, name)


def _are_there(files: int) -> str:
    return f"{counted(files, 'file')} {'is' if files == 1 else 'are'} there"


def set_object_at(folder: StoreFolder, target: Target) -> SetObject | None:
    """Return the set object of a pattern; None if there is none."""
    name = Path(set_path(target.path)).name
    return read_set(folder.open(name), with_index=False) if name in folder.entries() else None


def _base_begun(
    plan: PackPlan | StreamPlan,
    target: Target,
    folder: StoreFolder,
    current: SetObject | None,
    names: Collection[str],
) -> int:
    """
    Return the number of the first shard for those who go on with a plan: as its shards are numbered that are there, or
    the first free number if there is none.
    """
    if current is not None and _lists(current, plan) and _first_number(target, current) >= 0:
        return _first_number(target, current)
    if not target.overwrite:
        return 0
    listed = set() if current is None else {member.name for member in current.members}
    for name in sorted(names):
        number = target.number_of(name)
        if number is None or name in listed:
            continue
        file = folder.open(name)
        try:
            seal = seal_of(file, target.format.seal_at)
        except StoreError:
            continue
        finally:
            file.release()
        if seal.is_alone and seal.plan == plan.digest and seal.shard <= number:
            return number - seal.shard
    return base_number(target, _taken(target, current, names), plan.count or sys.maxsize)


def _taken(target: Target, current: SetObject | None, names: Collection[str]) -> set[str]:
    """
    Return the names that shards of a new set must not have: those that sets of the folder list. Where packers cannot
    exclude each other, what no set lists may be of one that is at work, and so has its name, too.
    """
    listed = set() if current is None else {member.name for member in current.members}
    if is_local(target.path):
        with suppress(StoreError):  # a set object that is damaged may list any of them
            return listed | listed_by_others(target)
    return listed | set(names)


def _first_number(target: Target, current: SetObject) -> int:
    """The number of a set's first shard; -1 if its name does not fit the pattern."""
    number = target.number_of(current.members[0].name)
    return -1 if number is None else number


def _lists(current: SetObject, plan: PackPlan | StreamPlan) -> bool:
    """Whether a set consists of the shards of a plan and nothing else."""
    return plan.listed(current.members) == len(current.members)


# Warns of files of a source that changed after shards were made of it: many a plan has but their names and sizes.

_LOG = logging.getLogger(__name__)


def warn_of_newer_files(planned: PlannedSet, kept: Collection[int]) -> None:
    """
    Log one line if files of the source are newer than the oldest shard of this plan that is there: the set may then
    hold old and new content. ``kept`` are the shards that stay.

    Both times of a file count, that of its content and that of its inode (ctime): unpacking an archive sets the first
    one back. A copy of the source is newer, too, so this is no error. Nothing is said of URLs.
    """
    oldest = _oldest_shard(planned, kept)
    if oldest is None:
        return
    count, first = 0, ""
    for path in planned.source.files():
        if is_local(path) and _changed_ns(path) > oldest:
            count, first = count + 1, first or path
    if count:
        again = "remove what was appended, and append again" if planned.options.append else "pack anew with --overwrite"
        _LOG.warning(
            "%s: %s of the source, e.g. %s, changed or came here after the first shard was made: if the content is no "
            "longer the same, the set mixes old and new: %s",
            planned.target.path,
            counted(count, "file"),
            first,
            again,
        )


def _oldest_shard(planned: PlannedSet, kept: Collection[int]) -> int | None:
    """When the oldest shard of the plan was finished, in ns; None if none is there, or they lie behind a URL."""
    if not is_local(planned.folder.path):
        return None
    # What is to be overwritten may belong to any plan.
    numbers = kept if planned.options.overwrite else planned.numbers_there()
    names = [name for name in map(planned.name, numbers) if name in planned.present]
    times = []
    for name in names:
        try:
            times.append(Path(planned.folder.full(name)).stat().st_mtime_ns)
        except OSError:  # another process has removed it meanwhile
            continue
    return min(times, default=None)


def _changed_ns(path: str) -> int:
    """When a file changed last; 0 if it cannot be looked at, which is found out when it is read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a million of them
    except OSError:
        return 0
    return max(status.st_mtime_ns, status.st_ctime_ns)
