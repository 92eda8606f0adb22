"""fastio.ray.pack: packs a source as ``fastio pack`` does, with its shards made by Ray tasks."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

from fastio.converters import open_source
from fastio.converters.packing.options import PackOptions, Part, Progress
from fastio.converters.packing.packer import pack_set, plan_for, plan_for_stream
from fastio.converters.packing.plan import PackPlan, StreamPlan
from fastio.converters.packing.planned_set import PlannedSet
from fastio.converters.packing.record import PackReport, check_pictures, stop_at
from fastio.converters.packing.shards import PlannedShard
from fastio.converters.packing.stream import StreamShards
from fastio.converters.pictures.raw import Raw
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.source import Source, StreamedSource, is_streamed
from fastio.errors import FastioError, SourceError, StoreError
from fastio.integrations.packages import imported
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.formats import shard_suffixes
from fastio.store.jump_tables import JumpRule
from fastio.store.kinds.scan import shown
from fastio.store.listing import held_partials, remove_stale
from fastio.store.write.atomic import writing
from fastio.store.write.target import Target

__all__ = [
    "pack",
    "remove_partials",
]


_ray = imported("ray", extra="ray", needed_by="fastio.ray")


_RETRIES = 10  # of a task whose worker or node died
_ENDING_S = 60.0  # for cancelled tasks to remove what they have begun
_NAMED = 3  # missing shards in an error
_WAITING = 2  # tasks for each that runs: the next one starts at once, and an autoscaler sees that there is work


def pack(  # noqa: PLR0913 - an option of the command each
    src: str | os.PathLike[str] | OpenSource,
    dst: str | os.PathLike[str],
    *,
    concurrency: int | None = None,
    jobs: int = 1,
    pictures: Transcode | Raw | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_bytes: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    jump: bool | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PackReport:
    """
    Pack ``src`` into the shards ``dst`` (``"train-%06d.tar"``) by tasks of a Ray cluster, and return what was done.

    The shards, and the set, are to the bit those that ``fastio pack`` makes of the same source: each is a function of
    the plan and its number. ``src`` is a path, or a function that opens the source, which all nodes call, such as
    ``partial(open_source, "photos", labels="labels.csv")``; ``dst`` is a path or a URL. All nodes must see both.

    Documents of text (a function that returns ``TextSamples``) are one stream, which is known when it has been read:
    each task makes every so many-th shard, as ``fastio pack --part I/N`` does, and reads all of the text for that. So
    there are as many tasks as run at once, and the shards are those of ``--part``, whatever their number.

    At most ``concurrency`` tasks run at once (default: as many as the cluster has CPUs for), each with ``jobs`` threads
    and CPUs. A task whose worker or node dies is run again, 10 times at most, and leaves nothing twice. The driver
    makes the set when all shards are there. If it is killed, or the pack fails, finished shards stay, and ``resume``
    makes only what is missing; a bad sample removes what this run has made, as ``fastio pack`` does. The other
    arguments are those of ``fastio.converters.pack``; ``progress(samples, bytes)`` is called for every shard.
    ``storage_options`` are for a URL.

    Raises SourceError for a bad sample, and if nodes see different sources; and StoreError if nothing can be written,
    workers die again and again, or shards are missing in the end.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
    for name, value in (("concurrency", concurrency), ("jobs", jobs)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: expected at least 1")
    out = os.fspath(dst)
    out = os.path.abspath(out) if is_local(out) else out  # noqa: PTH100 - workers have other current folders
    if not Target.of(out, overwrite=overwrite).is_set:
        raise StoreError(f"{os.fspath(dst)}: Ray writes shards: name them like train-%06d{shard_suffixes()[0]}")
    opener: OpenSource = src if callable(src) else partial(open_source, os.path.abspath(os.fspath(src)))  # noqa: PTH100
    source = opener()
    if on_error == "raise" and source.problems:
        raise stop_at(source, source.problems[0], of=len(source.problems))
    if pictures is not None:
        if is_streamed(source):
            raise SourceError(f"{shown(source.path)}: is text: pictures= is for samples that have some")
        check_pictures(source, pictures)
    options = PackOptions(
        jobs=jobs,
        on_error=on_error,
        shard_bytes=shard_bytes,
        overwrite=overwrite,
        resume=resume,
        jump=jump,
        remote=Remote(storage_options=dict(storage_options or {})),
    )
    tasks = _Tasks(opener, pictures, concurrency, progress)
    options = replace(options, progress=progress)
    return pack_set(source, out, pictures, options, make=tasks.make, stream=tasks.stream)


class _Tasks:
    """Has shards made by tasks, some at a time."""

    def __init__(
        self,
        opener: OpenSource,
        pictures: Transcode | Raw | None,
        concurrency: int | None,
        progress: Progress | None,
    ) -> None:
        self._opener = opener
        self._pictures = pictures
        self._concurrency = concurrency
        self._progress = progress

    def make(self, planned: PlannedSet, numbers: Sequence[int]) -> Generator[int, None, None]:
        """
        Yield the number of each shard when it is finished, in any order; before an error, also those that other tasks
        have finished meanwhile. No task runs any more at the end.
        """
        work, running = self._work(planned), dict[Any, int]()
        task = self._remote(make_shard, work.options)
        shared = _ray.put(work)

        def begin(number: int) -> Any:
            return task.remote(shared, number, replaces=planned.name(number) in planned.present)

        bound = self._bound(work.options)
        try:
            for number, shard in _finished(
                begin, numbers, running, bound, lambda n: planned.folder.full(planned.name(n))
            ):
                self.tell(shard)
                yield number
        except FastioError:
            _end(list(running))
            yield from (number for number in running.values() if _was_made(planned, number))
            running.clear()
            raise
        finally:
            _end(list(running))
            if is_local(planned.target.path):
                remove_partials(planned.target)

    def stream(self, planned: PlannedSet, kept: Mapping[int, PlannedShard]) -> TaskParts:
        """Return what makes the shards of a stream that are missing."""
        return TaskParts(self, planned, kept)

    def make_parts(
        self, planned: PlannedSet, kept: Mapping[int, PlannedShard]
    ) -> Generator[tuple[Part, FinishedPart], None, None]:
        """Yield what became of each part of a stream; no task runs any more at the end, or when it raises."""
        work, running = self._work(planned), dict[Any, Part]()
        stale = planned.present - {planned.name(number) for number in kept}
        task, shared = self._remote(make_part, work.options), _ray.put(work)
        count = self._concurrency or self._at_once(work.options)

        def begin(part: Part) -> Any:
            return task.remote(shared, part, stale)

        try:
            parts = [Part(index, count) for index in range(count)]
            yield from _finished(
                begin, parts, running, lambda: count, lambda part: f"{planned.target.path}: part {part}"
            )
        finally:
            _end(list(running))
            if is_local(planned.target.path):
                remove_partials(planned.target)

    def tell(self, shard: FinishedShard) -> None:
        """Report a shard to whoever asked for progress."""
        if self._progress is not None:
            self._progress(shard.samples, shard.payload_bytes)

    def _work(self, planned: PlannedSet) -> PackWork:
        return PackWork(
            secrets.token_hex(8),
            self._opener,
            planned.target.path,
            self._pictures,
            replace(planned.options, progress=None),
            planned.plan.digest,
            planned.plan.record,
            planned.base,
        )

    @staticmethod
    def _remote(function: Callable[..., Any], options: PackOptions) -> Any:
        return _ray.remote(function).options(num_cpus=options.jobs, max_retries=_RETRIES, name="fastio.pack")

    def _bound(self, options: PackOptions) -> Callable[[], int]:
        """How many tasks may be under way; clusters grow."""
        return lambda: self._concurrency or _WAITING * self._at_once(options)

    @staticmethod
    def _at_once(options: PackOptions) -> int:
        """How many tasks the cluster has CPUs for."""
        return max(1, int(_ray.cluster_resources().get("CPU", 1)) // (options.jobs or 1))


class TaskParts:
    """
    The shards of a stream, made by tasks: what ``StreamShards`` is in one process. Each part of the stream is a task,
    and the driver takes note of every shard: one that nobody has made is an error, and no set is made.
    """

    def __init__(self, tasks: _Tasks, planned: PlannedSet, kept: Mapping[int, PlannedShard]) -> None:
        self.count: int | None = None  # of all shards, once the stream has ended
        self._tasks, self._planned, self._kept = tasks, planned, kept

    def pack(self) -> Generator[int, None, None]:
        """
        Yield the numbers of shards that are finished; before an error, also of those of parts that did not end.

        Raises StoreError if parts disagree about the stream, or if a shard is missing when all have ended.
        """
        planned, made = self._planned, set[int]()
        try:
            for part, done in self._tasks.make_parts(planned, self._kept):
                if self.count not in (None, done.count):
                    raise StoreError(
                        f"{planned.target.path}: part {part} reads text for {done.count} shards, another part for "
                        f"{self.count}: the text changed meanwhile: pack all again with overwrite=True"
                    )
                self.count = done.count
                for shard in done.shards:
                    self._tasks.tell(shard)
                    made.add(shard.number)
                    yield shard.number
        except FastioError:
            there = planned.numbers_there(planned.folder.entries())
            yield from (n for n in there if n not in made and planned.name(n) not in planned.present)
            raise
        missing = sorted(set(range(self.count or 0)) - made - self._kept.keys())
        if missing:
            names = ", ".join(planned.name(number) for number in missing[:_NAMED]) + (
                ", ..." if missing[_NAMED:] else ""
            )
            raise StoreError(
                f"{planned.target.path}: {len(missing)} of {self.count} shards are missing although all parts have "
                f"ended, e.g. {names}: was something removed meanwhile? go on with resume=True"
            )


_Item = TypeVar("_Item")


def _finished(
    begin: Callable[[_Item], Any],
    items: Iterable[_Item],
    running: dict[Any, _Item],
    bound: Callable[[], int],
    name: Callable[[_Item], str],
) -> Generator[tuple[_Item, Any], None, None]:
    """
    Begin a task for each item, at most ``bound()`` at a time, and yield their results in any order; ``running`` has
    those under way. ``name`` names an item in the error if its workers died.
    """
    waiting = iter(items)
    while True:
        for item in islice(waiting, max(0, bound() - len(running))):
            running[begin(item)] = item
        if not running:
            return
        (ready, *_), _ = _ray.wait(list(running), num_returns=1)
        item = running.pop(ready)
        yield item, _result(ready, name(item))


def _result(task: Any, path: str) -> Any:
    """Return a task's result. Raises the task's own FastioError, and StoreError if its workers died."""
    try:
        return _ray.get(task)
    except _ray.exceptions.RayTaskError as exc:
        if isinstance(exc.cause, FastioError):
            raise exc.cause from None
        raise
    except _ray.exceptions.RaySystemError as exc:
        raise _died(path, exc) from exc
    except (_ray.exceptions.WorkerCrashedError, _ray.exceptions.OutOfMemoryError) as exc:
        raise _died(path, exc) from exc


def _died(path: str, error: Exception) -> StoreError:
    reason = str(error).strip().partition("\n")[0]
    return StoreError(
        f"{path}: its task was started {_RETRIES + 1} times, and its worker died each time ({reason}): look into Ray's "
        "logs for why (memory?), then go on with resume=True"
    )


def _was_made(planned: PlannedSet, number: int) -> bool:
    """Whether this run has finished a shard: its task may have ended before it was cancelled."""
    name = planned.name(number)
    return name not in planned.present and planned.folder.etag(name) is not None


def _end(tasks: list[Any]) -> None:
    """
    Cancel tasks, and return when none runs any more: they must not write after the driver has given up.

    A task is interrupted as by Ctrl-C, so that it removes the shard that it has begun; one that does not end is killed.
    """
    for task in tasks:
        _ray.cancel(task)
    if tasks:
        _, left = _ray.wait(tasks, num_returns=len(tasks), timeout=_ENDING_S)
        for task in left:
            _ray.cancel(task, force=True)
        if left:
            _ray.wait(left, num_returns=len(left))


# What one Ray task of ``pack`` does: opens the source as the driver did, and makes one shard of its plan.

OpenSource = Callable[[], Source | StreamedSource]


@dataclass(frozen=True, slots=True)
class PackWork:
    """What is the same for all tasks of a pack; ``run`` tells it from every other one."""

    run: str
    open_source: OpenSource
    out: str
    pictures: Transcode | Raw | None
    options: PackOptions
    digest: int  # of the driver's plan
    record: Mapping[str, Any]  # of the driver's plan
    base: int


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """What a task tells the driver of its shard."""

    number: int
    samples: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class FinishedPart:
    """What a task tells the driver of its part of a stream; ``count`` is that of all shards of the stream."""

    count: int
    shards: tuple[FinishedShard, ...]


# A process packs many shards of a source, which is scanned and planned once a run.
_opened: tuple[str, Source | StreamedSource, PackPlan | StreamPlan] | None = None


def make_shard(work: PackWork, number: int, *, replaces: bool) -> FinishedShard:
    """
    Make shard ``number``. If an earlier attempt has finished it, it is left as it is, unless it ``replaces`` what the
    driver has seen there.

    Raises SourceError for a bad sample, and if this process sees another source than the driver.
    """
    planned = _planned_set(work)
    name = planned.name(number)
    is_there = planned.folder.etag(name) is not None
    planned = replace(planned, present=frozenset([name] if is_there else []))
    if is_there and not replaces:
        shard = planned.existing([number]).get(number)
        if shard is not None:
            return FinishedShard(number, shard.member.count, int(shard.packed["payload_bytes"]))
    done = [0, 0]

    def progress(samples: int, size_bytes: int) -> None:
        done[0] += samples
        done[1] += size_bytes

    for _ in planned.pack([number], progress):
        pass
    return FinishedShard(number, *done)


def make_part(work: PackWork, part: Part, stale: frozenset[str]) -> FinishedPart:
    """
    Make the shards of a part of a stream, but for those that are there: of an earlier attempt, or of a run before.
    Files with ``stale`` names, which the driver has seen there, are replaced.

    Raises SourceError for a bad document, and if this process sees another source than the driver.
    """
    planned = _planned_set(work)
    there = frozenset(planned.folder.entries())
    mine = [number for number in planned.numbers_there(there) if number % part.count == part.index]
    kept = planned.existing([number for number in mine if planned.name(number) not in stale], there)
    options = replace(work.options, part=part)
    stream = StreamShards(replace(planned, present=there, options=options), kept)
    made = list(stream.pack())
    assert stream.count is not None, "the stream has ended"
    shards = {**kept, **planned.existing(made, frozenset(planned.folder.entries()))}
    finished = (
        FinishedShard(number, shards[number].member.count, int(shards[number].packed["payload_bytes"]))
        for number in sorted(shards)
        if number < stream.count
    )
    return FinishedPart(stream.count, tuple(finished))


def _planned_set(work: PackWork) -> PlannedSet:
    """The set as this process sees it, with no file that was there before."""
    source, plan = _planned(work)
    folder, _ = folder_of(work.out, work.options.remote)
    target = Target.of(work.out, overwrite=work.options.overwrite)
    return PlannedSet(plan, source, target, folder, work.base, None, frozenset(), work.options)


def _planned(work: PackWork) -> tuple[Source | StreamedSource, PackPlan | StreamPlan]:
    global _opened  # noqa: PLW0603 - one source a process
    if _opened is not None and _opened[0] == work.run:
        return _opened[1:]
    source = work.open_source()
    plan: PackPlan | StreamPlan
    if is_streamed(source):
        plan = plan_for_stream(source, work.out, work.options, by_text=True)
    else:
        plan = plan_for(source, work.out, work.pictures, work.options).with_jump(JumpRule.from_json(work.record))
    if plan.digest != work.digest or not plan.has_contents_of(work.record):
        names = {*work.record, *plan.record}
        differing = sorted(name for name in names if work.record.get(name) != plan.record.get(name))
        raise SourceError(
            f"{shown(source.path)}: another node sees another source than the driver: {', '.join(differing)} differ: "
            "copy the source completely to where all nodes see it, and do not change it while it is packed"
        )
    _opened = (work.run, source, plan)
    return source, plan


# Removes the hidden files of tasks that were killed, once they are dead.

_DYING_S = 5.0  # after which a file that is locked belongs to a packer that lives
_PAUSE_S = 0.02


def remove_partials(target: Target) -> None:
    """
    Remove the unfinished shards of dead tasks under the names of a local target.

    A task that was killed a moment ago still holds its lock: waits for that, a few seconds at most. What is held
    longer belongs to another packer of the same shards, and stays.
    """
    deadline = time.monotonic() + _DYING_S
    with writing(target.path):
        while True:
            remove_stale(target.folder, target.pattern)
            if not held_partials(target.folder, target.pattern) or time.monotonic() > deadline:
                return
            time.sleep(_PAUSE_S)
