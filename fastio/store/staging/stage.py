"""Copies a store, whole and checked, into a folder of this machine: once, however many processes ask for it."""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastio._native import ThreadPool
from fastio.errors import StoreError
from fastio.store.beside.added import FIELDS_SUFFIX, added_stores, fields_folder
from fastio.store.files import open_file
from fastio.store.files.local import check_folder_here, is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.sealed import Shard, read_shard
from fastio.store.index.store import check_set
from fastio.store.sets.members import open_members
from fastio.store.sets.set_object import SetMember, read_set, write_set
from fastio.store.staging.file_copy import FileCopy, Mover, ThreadMover, damage_of, hidden_copy, hidden_files, is_copy
from fastio.store.staging.plan import StagedFile, StagePlan, member_files, plan_stage
from fastio.store.staging.record import RECORD_SUFFIX, StageRecord, stamps
from fastio.store.write.atomic import PartialFile, sync_folder, writing
from fastio.types.units import size as shown_size

__all__ = [
    "Meter",
    "StageReport",
    "Waiting",
    "check_stage",
    "copy_store",
    "logged_meter",
    "stage",
    "stage_lock",
]


_LOG = logging.getLogger(__name__)

_JOBS_LOCAL, _JOBS_REMOTE = 4, 16  # blocks under way; each takes 16 MiB of memory
_WAIT_S = 600.0

Progress = Callable[[int, int], None]
Meter = Callable[[int], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class StageReport:
    """What ``stage`` did."""

    source: str
    path: str  # opens the copy
    files: int
    size_bytes: int  # of all files
    fetched_bytes: int  # the rest was there already
    trusted_bytes: int  # of the rest, what was taken as it lies there, without comparing it
    mended_files: int  # that were there and damaged, and were copied again
    seconds: float


_COUNTS = ("files", "size_bytes", "fetched_bytes", "trusted_bytes", "mended_files")


@contextmanager
def _unmeasured(_total: int) -> Iterator[Progress]:
    yield lambda _samples, _size_bytes: None


def stage(
    path: str,
    folder: str,
    *,
    options: Remote = DEFAULT,
    jobs: int | None = None,
    meter: Meter = _unmeasured,
    on_wait: Callable[[str], None] = _LOG.warning,
    wait_s: float = _WAIT_S,
    check: bool = False,
) -> StageReport:
    """
    Copy the store at ``path`` (a file, a set, or a URL) into ``folder``, and compare every byte with its checksums.

    Fields that were added to it come along, into a folder beside the copy, so that whoever opens the copy finds them;
    the report counts them, too. Copies of those that ``path`` has no more go.

    What a former call has copied is trusted if its size and seal are right; ``check`` compares it, too, and copies
    damaged files again.

    ``jobs`` blocks of 16 MiB are under way at once. Processes that stage into the same folder take turns; ``on_wait``
    is told whom this one waits for, and after ``wait_s`` seconds without progress there it raises. A copy that was
    interrupted goes on where it stopped; a whole one is left as it is; one of an older version is replaced. ``meter``
    gets the number of bytes to copy and gives what is called with (0, bytes) for each block. ``folder`` is made if the
    folder that it lies in is there.

    Raises StoreError: the source cannot be read, was replaced or is damaged, the folder lacks space, holds other files
    under these names, or lies in a folder that does not exist.
    """
    default = _JOBS_LOCAL if is_local(path) else _JOBS_REMOTE
    return copy_store(path, folder, options, ThreadMover(jobs or default), Waiting(on_wait, wait_s), meter, check=check)


def check_stage(folder: str) -> None:
    """
    Raise StoreError for a URL, and for a folder to be made in one that does not exist.

    That is a mistyped name, or a disk that is not mounted: the copy would fill the disk of the system instead.
    """
    check_folder_here(folder)
    target = Path(folder)
    with writing(folder):
        is_lost = not target.exists() and not target.parent.is_dir()
    if is_lost:
        raise StoreError(
            f"{folder}: the folder {target.parent} does not exist: check the name, mount its disk, or create it first"
        )


def copy_store(
    path: str,
    folder: str,
    options: Remote,
    mover: Mover,
    waiting: Waiting,
    meter: Meter = _unmeasured,
    *,
    check: bool = False,
) -> StageReport:
    """Do what ``stage`` does; ``mover`` brings the blocks, but for what epochs have brought meanwhile."""
    begun = time.monotonic()
    check_stage(folder)
    options = dataclasses.replace(options, cache_dir=None, cache_limit=None)  # nothing is read twice
    plan = plan_stage(path, options)
    target = Path(folder)
    with writing(folder):
        target.mkdir(exist_ok=True)
    _refuse_own_folder(plan, target)
    fields = target / f"{plan.result}{FIELDS_SUFFIX}"  # before the store, so that a copy that has its name has them
    brought = [
        copy_store(place, str(fields), options, mover, waiting, meter, check=check)
        for place in added_stores(path).values()
    ]
    report = _copy_alone(plan, target, options, mover, waiting, meter, check=check)
    _remove_lost(path, fields, waiting)
    reports = [report, *brought]
    sums = {name: sum(getattr(each, name) for each in reports) for name in _COUNTS}
    return dataclasses.replace(report, **sums, seconds=time.monotonic() - begun)


def _copy_alone(
    plan: StagePlan, target: Path, options: Remote, mover: Mover, waiting: Waiting, meter: Meter, *, check: bool
) -> StageReport:
    """Copy what a plan says, without the fields that were added to it, unless it is there."""
    record = StageRecord.read(target, plan.result)
    if check or record is None or record.content != plan.content or not record.holds(target):
        with stage_lock(target, f"copying {plan.path}", waiting) as progressed:
            record = StageRecord.read(target, plan.result)
            if check or record is None or record.content != plan.content or not record.holds(target):
                return _Run(plan, target, options, mover, meter, progressed, check=check).report()
    size_bytes = sum(size for _, size, _ in record.files)
    return StageReport(plan.path, str(target / plan.result), len(record.files), size_bytes, 0, size_bytes, 0, 0.0)


def _remove_lost(path: str, fields: Path, waiting: Waiting) -> None:
    """Remove the copies of fields that were added to the store at ``path``, and are there no more."""
    source = fields_folder(path)

    def lost() -> list[tuple[str, StageRecord]]:
        names = [each.name.removeprefix(".").removesuffix(RECORD_SUFFIX) for each in fields.glob(f".*{RECORD_SUFFIX}")]
        records = [(name, StageRecord.read(fields, name)) for name in names]
        there = added_stores(path).values()
        return [
            (name, record)
            for name, record in records
            if record is not None and str(Path(record.source).parent) == source and record.source not in there
        ]

    if lost():
        with stage_lock(fields, f"removing fields that {path} has no more", waiting):
            for name, record in lost():
                for each in (name, *sorted(record.names - {name})):  # a set object before its shards
                    _remove_copy(fields / each)
                with writing(str(fields / name)):
                    (fields / f".{name}{RECORD_SUFFIX}").unlink(missing_ok=True)


def _refuse_own_folder(plan: StagePlan, target: Path) -> None:
    file = plan.set_object or plan.files[0]
    if is_local(file.source.path) and Path(file.source.path).parent.resolve() == target.resolve():
        raise StoreError(f"{plan.path}: lies in {target} already: choose another folder")


class _Run:
    """One attempt to copy what a plan says, under the lock of the folder."""

    def __init__(
        self,
        plan: StagePlan,
        folder: Path,
        options: Remote,
        mover: Mover,
        meter: Meter,
        progressed: Callable[[], None],
        *,
        check: bool,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._options = options
        self._mover = mover
        self._meter = meter
        self._progressed = progressed
        self._pool = ThreadPool(mover.check_threads)
        self._check = check
        self._fetched_bytes = self._trusted_bytes = self._mended_files = 0
        before = StageRecord.read(folder, plan.result)
        self._ours = frozenset() if before is None else before.names

    def report(self) -> StageReport:
        """Copy, and say what was done."""
        names = self._copy_set() if self._plan.set_object is not None else self._copy_files()
        record = StageRecord(self._plan.path, self._plan.content, True, stamps(self._folder, names))
        record.write(self._folder, self._plan.result)
        self._remove_replaced(self._ours - record.names)
        return StageReport(
            self._plan.path,
            str(self._folder / self._plan.result),
            len(names),
            sum(size for _, size, _ in record.files),
            self._fetched_bytes,
            self._trusted_bytes,
            self._mended_files,
            0.0,
        )

    def _copy_set(self) -> list[str]:
        """Copy the set object under a hidden name, then its shards, and give it its name last."""
        file = self._plan.set_object
        assert file is not None
        self._check_free([file])
        with closing(FileCopy(file, self._folder)) as copy:
            self._transfer([copy], lambda copy: copy.check(self._pool, self._progressed), _unmeasured(0))
            self._fetched_bytes += copy.fetched_bytes
            found = read_set(open_file(str(copy.partial), "pread"))
            members = member_files(found, file.source.path, self._options)
            names = [*(member.name for member in members), self._plan.result]
            self._bring(members, names, kept=[file])
            if all(m.name == f.name for m, f in zip(found.members, members, strict=True)):
                copy.publish()
                return names
            renamed = found.members.renamed(local.name for local in members)
            at_home = dataclasses.replace(found, path=str(self._folder / self._plan.result), members=renamed)
            shards = open_members(at_home, read="pread")
            self._write_set(shards, renamed, found.format, found.generation, found.metadata)
            _remove_hidden(copy.path)
            # The set object that was fetched is no part of the copy, and the one with other names came from nowhere.
            self._fetched_bytes += (self._folder / self._plan.result).stat().st_size - copy.fetched_bytes
            return names

    def _copy_files(self) -> list[str]:
        """Copy sealed files; several get a set object, which makes them a set at one instant."""
        files = list(self._plan.files)
        names = [file.name for file in files]
        if self._plan.result in names:
            self._bring(files, names)
            return names
        self._bring(files, [*names, self._plan.result])
        form = self._plan.format
        assert form is not None
        sources = [open_file(str(self._folder / name), "pread") for name in names]
        opened = [read_shard(source, format_name=form.name, seal_at=form.seal_at) for source in sources]
        shards = check_set(self._plan.path, opened)
        members = [
            SetMember(Path(shard.path).name, shard.count, shard.data.size, shard.seal.file_crc)
            for shard in shards
            if shard.seal is not None
        ]
        self._write_set(shards, members, form.name, 1, shards[0].metadata)
        return [*names, self._plan.result]

    def _bring(self, files: Sequence[StagedFile], names: Sequence[str], kept: Sequence[StagedFile] = ()) -> None:
        """Copy the files that are not there, and give each its name once it was checked."""
        there = {file.name for file in (*files, *kept) if is_copy(self._folder / file.name, file.content)}
        old = [file for file in files if file.name in there]
        if self._check:
            damaged = self._damaged(old)
            self._mended_files += len(damaged)
            there -= damaged
        else:
            self._trusted_bytes += sum(file.source.size for file in old)
        missing = [file for file in files if file.name not in there]
        for name in there - {file.name for file in kept}:
            _remove_hidden(self._folder / name)
        self._check_names(set(names) - there)
        self._check_free([*missing, *kept])
        marked = [(name, 0, 0) for name in sorted({*names, *self._ours})]
        StageRecord(self._plan.path, self._plan.content, False, marked).write(self._folder, self._plan.result)
        for file in missing:
            with writing(str(self._folder)):  # 0.1 noted there what it had copied: these bytes are copied again
                hidden_files(self._folder / file.name)[2].unlink(missing_ok=True)
        if not is_local(self._plan.path):
            with writing(str(self._folder)):
                for file in missing:  # at once, so that epochs can put there what they fetch
                    hidden_copy(self._folder / file.name, file.content, makes=True).make()
        copies = (FileCopy(file, self._folder) for file in missing)
        self._transfer(copies, self._publish, self._meter(sum(file.source.size for file in missing)))

    def _damaged(self, files: Sequence[StagedFile]) -> set[str]:
        """Compare the copies of these files with their checksums; return the names of those that differ."""
        damaged = set()
        with self._meter(sum(file.source.size for file in files)) as count:
            for file in files:
                path = self._folder / file.name
                try:
                    problem, _ = damage_of(path, file, self._pool, self._progressed)
                except StoreError as exc:  # of its disk
                    problem = str(exc)
                if problem is not None:
                    _LOG.warning("%s: damaged on this machine (%s): it is copied again", path, problem)
                    damaged.add(file.name)
                count(0, file.source.size)
        return damaged

    def _transfer(
        self,
        copies: Iterable[FileCopy],
        finish: Callable[[FileCopy], None],
        meter: AbstractContextManager[Progress],
    ) -> None:
        with meter as count:

            def progress(size_bytes: int) -> None:
                count(0, size_bytes)
                self._progressed()

            self._mover.move(copies, finish, progress)

    def _publish(self, copy: FileCopy) -> None:
        copy.check(self._pool, self._progressed)
        copy.publish()
        copy.close()
        self._fetched_bytes += copy.fetched_bytes

    def _write_set(
        self, shards: Sequence[Shard], members: Sequence[SetMember], form: str, generation: int, metadata: bytes
    ) -> None:
        """Write a set object of our own, for shards that lie elsewhere than the set says, or were one by version 1."""
        path = self._folder / self._plan.result
        file = PartialFile(str(path))
        try:
            write_set(file, shards, members, form=form, generation=generation, metadata=metadata)
            file.sync()
            with writing(str(path)):
                Path(file.partial).rename(path)
                file.published()
                sync_folder(self._folder)
        finally:
            file.discard()

    def _check_names(self, names: set[str]) -> None:
        """Raise StoreError if the user has other files under these names."""
        for name in sorted(names - self._ours):
            if os.path.lexists(self._folder / name):
                raise StoreError(
                    f"{self._folder / name}: exists, and is not a copy that fastio made of {self._plan.path}: choose "
                    "another folder, or remove it"
                )

    def _check_free(self, files: Sequence[StagedFile]) -> None:
        """Raise StoreError if the disk has no space for the rest of these files."""
        needed = sum(max(0, file.source.size - _allocated(hidden_files(self._folder / file.name)[0])) for file in files)
        with writing(str(self._folder)):
            free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise StoreError(
                f"{self._folder}: {self._plan.path} needs {shown_size(needed)} more, {shown_size(free)} are free: free "
                "space, or choose another folder"
            )

    def _remove_replaced(self, names: frozenset[str]) -> None:
        """Remove what belonged to a version that this one replaced."""
        for name in names:
            _remove_copy(self._folder / name)


def _remove_copy(path: Path) -> None:
    with writing(str(path)):
        path.unlink(missing_ok=True)
    _remove_hidden(path)


def _remove_hidden(path: Path) -> None:
    """Remove what an attempt left that was killed just before or after it gave the copy its name."""
    for hidden in hidden_files(path):
        with writing(str(path)):
            hidden.unlink(missing_ok=True)


def _allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


# Who copies to a folder: one process at a time; the others wait for as long as it makes progress.

LOCK_NAME = ".fastio-stage.lock"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Waiting:
    """
    How a process waits for another one that copies: ``on_wait`` is told once for whom, and after ``wait_s`` seconds
    without progress there it gives up. ``pause`` sleeps between looks, and is called with 0
    at each step of this process's own progress; what it raises ends the copying.
    """

    on_wait: Callable[[str], None]
    wait_s: float = 600.0
    pause: Callable[[float], None] = time.sleep


@contextmanager
def stage_lock(folder: Path, task: str, waiting: Waiting) -> Iterator[Callable[[], None]]:
    """
    Hold the lock of a folder; yields a function to call after each step of progress.

    Raises StoreError if the process that has it makes no progress for too long. The lock of a process that dies is
    free at once.
    """
    path = folder / LOCK_NAME
    with writing(str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait(fd, path, waiting)
        with writing(str(path)):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}: {task}".encode(errors="replace"), 0)

        def progressed() -> None:
            waiting.pause(0)
            os.utime(fd)

        yield progressed
    finally:
        os.close(fd)


def _wait(fd: int, path: Path, waiting: Waiting) -> None:
    is_told = False
    last, since = -1, time.monotonic()
    while not _is_ours(fd, path):
        progress = os.fstat(fd).st_mtime_ns
        if progress != last:
            last, since = progress, time.monotonic()
        holder = os.pread(fd, 4096, 0).decode(errors="replace") or "another process"
        if not is_told:
            is_told = True
            waiting.on_wait(f"{path.parent}: waiting for {holder}")
        if time.monotonic() - since > waiting.wait_s:
            raise StoreError(
                f"{path.parent}: {holder} has made no progress for {waiting.wait_s:g} s: end it, or choose another "
                "folder"
            )
        waiting.pause(_POLL_S)


def _is_ours(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        raise StoreError(
            f"{path.parent}: its file system has no locks ({exc.strerror}): choose a disk of this machine"
        ) from exc
    return True


# Lines in the log that say how far a copy is.

_INTERVAL_S = 30.0  # between lines
_SHORT_S = 5.0  # copies that take less say nothing


def logged_meter(path: str, folder: str) -> Meter:
    """Return a meter for ``stage`` that logs how far the copy of ``path`` to ``folder`` is."""

    @contextmanager
    def meter(total: int) -> Iterator[Callable[[int, int], None]]:
        begun = time.monotonic()
        next_line = begun + _SHORT_S
        done = 0

        def progress(_samples: int, size_bytes: int) -> None:
            nonlocal done, next_line
            done += size_bytes
            now = time.monotonic()
            if now >= next_line:
                next_line = now + _INTERVAL_S
                left_s = (total - done) * (now - begun) / done
                _LOG.warning(
                    "%s: %s of %s copied to %s, %.0f s left", path, shown_size(done), shown_size(total), folder, left_s
                )

        yield progress

    return meter
