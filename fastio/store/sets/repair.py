"""Mends a set: shards that are missing or damaged are written again, to the same bytes as before."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from fastio.errors import SourceError, StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS
from fastio.store.index.seal import SealAt, read_seal
from fastio.store.index.sealed import seal_of
from fastio.store.listing import visible_names
from fastio.store.scratch import ScratchFolder
from fastio.store.sets.names import SET_SUFFIX
from fastio.store.sets.set_object import (
    SetMember,
    SetObject,
    check_whole,
    current_set,
    damage_of,
    open_damaged,
    read_set,
)
from fastio.store.store_folder import StoreFolder, other_version
from fastio.store.write.atomic import writing
from fastio.store.write.locks import turn

__all__ = [
    "CannotMake",
    "Copies",
    "Maker",
    "Offer",
    "RepairReport",
    "repair_set",
]


_THREADS = 4  # shards checked at once
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
_ADVICE = "set TMPDIR to a folder on a larger disk"

Progress = Callable[[int, int], object]  # called with samples and bytes


class CannotMake(StoreError):  # noqa: N818 - reads as a statement, like StoreNotFound
    """Whoever might have a good shard does not have this one; the message says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A shard as someone has it: where it is from, and what writes it to a new file."""

    source: str
    write: Callable[[Path], None]


class Maker(Protocol):
    """Where good shards come from: another copy of the set, or its source."""

    def offers(self, number: int, member: SetMember) -> Iterable[Offer]:
        """
        Return where shard ``number`` of a set, as ``member`` lists it, can be had. What is written is checked.

        Raises CannotMake, as writing may.
        """
        ...

    def check(self) -> None:
        """Raise StoreError or SourceError if nothing of the set can come from here, as far as names and seals tell."""
        ...


@dataclass(frozen=True, slots=True)
class ShardRepair:
    """A shard that was missing or damaged."""

    path: str
    problem: str
    source: str | None  # where the bytes came from that it has now; None: it is as it was
    reason: str | None = None  # why it is as it was


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair has found and done. All other shards of the set are whole, every byte of them."""

    path: str
    shards: int
    repaired: tuple[ShardRepair, ...]
    left: tuple[ShardRepair, ...]


def damaged_members(found: SetObject, *, remote: Remote = DEFAULT, progress: Progress | None = None) -> dict[int, str]:
    """
    Read all shards of a set. Returns the numbers of those that are missing or damaged, and what is wrong with each.

    Raises StoreError if a shard cannot be read for another reason, such as a refused request.
    """
    folder, _ = folder_of(found.path, remote)
    seal_at = FORMATS[found.format].seal_at

    def problem(member: SetMember) -> str | None:
        path = folder.full(member.name)
        try:
            check_whole(open_damaged(path, remote), member, seal_at)
        except StoreError as exc:
            damage = damage_of(exc)
            if damage is None:
                raise
            return damage.removeprefix(f"{path}: ")
        return None

    damaged: dict[int, str] = {}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fastio-repair") as threads:
        for number, (member, damage) in enumerate(zip(found.members, threads.map(problem, found.members), strict=True)):
            if damage is not None:
                damaged[number] = damage
            if progress is not None:
                progress(member.count, member.size)
    return damaged


def repair_set(
    found: SetObject,
    makers: Sequence[Maker],
    *,
    remote: Remote = DEFAULT,
    progress: Progress | None = None,
) -> RepairReport:
    """
    Check every byte of a set, and write each missing or damaged shard again as the first maker that has it makes it.

    A shard is replaced only by bytes that have the size and CRC-32 that the set lists, in one step; others stay as
    they are, and are ``left`` in the report. Raises StoreError if a shard cannot be read or written, and before
    anything is read if no maker has anything of the set (or SourceError).
    """
    _check_makers(makers)
    damaged = damaged_members(found, remote=remote, progress=progress)
    repaired: list[ShardRepair] = []
    left: list[ShardRepair] = []
    with ExitStack() as opened:
        scratch = opened.enter_context(ScratchFolder()) if damaged else None
        for number, problem in damaged.items():
            assert scratch is not None
            result = _repaired(found, number, problem, makers, scratch, remote)
            (left if result.source is None else repaired).append(result)
    return RepairReport(found.path, len(found.members), tuple(repaired), tuple(left))


def _check_makers(makers: Sequence[Maker]) -> None:
    """Raise the error of the last maker if all of them refuse: to find that out after hours of reading is too late."""
    for maker in makers[:-1]:
        try:
            maker.check()
        except (StoreError, SourceError):
            continue
        return
    makers[-1].check()


def _repaired(
    found: SetObject,
    number: int,
    problem: str,
    makers: Sequence[Maker],
    scratch: ScratchFolder,
    remote: Remote,
) -> ShardRepair:
    member = found.members[number]
    path = folder_of(found.path, remote)[0].full(member.name)
    folder, name = folder_of(path, remote)
    etag = folder.etag(name)
    reasons: list[str] = []
    for maker in makers:
        try:
            for offer in maker.offers(number, member):
                reason = _written(found, member, offer, scratch, (folder, name, etag), remote)
                if reason is None:
                    return ShardRepair(path, problem, offer.source)
                reasons.append(reason)
        except CannotMake as exc:
            reasons.append(str(exc))
    return ShardRepair(path, problem, None, "; ".join(dict.fromkeys(reasons)) or "no copy of it is there")


def _written(
    found: SetObject,
    member: SetMember,
    offer: Offer,
    scratch: ScratchFolder,
    target: tuple[StoreFolder, str, str | None],
    remote: Remote,
) -> str | None:
    """Give a shard the bytes that are offered if they are right. Returns why they are not."""
    folder, name, etag = target
    scratch.require(member.size, advice=_ADVICE)
    file = scratch.file(name)
    try:
        offer.write(file)
        check_whole(open_damaged(str(file)), member, FORMATS[found.format].seal_at)
        with _turn(found.path):
            _require_listed(found, member, remote)
            _require_unused(folder.full(name), member, FORMATS[found.format].seal_at)
            folder.put(name, file, etag=etag)
    except (StoreCorrupt, StoreIncomplete, StoreNotFound, CannotMake) as exc:
        return f"{offer.source}: {str(exc).removeprefix(f'{file}: ').removeprefix(f'{offer.source}: ')}"
    finally:
        file.unlink(missing_ok=True)
    return None


@contextmanager
def _turn(path: str) -> Iterator[None]:
    """Let nobody replace a set of this machine meanwhile, unless its folder can only be read."""
    with ExitStack() as held:
        if is_local(path):
            try:
                held.enter_context(turn(path))
            except OSError as exc:
                if exc.errno not in _READ_ONLY:
                    raise StoreError(f"{path}: cannot be locked ({exc.strerror}): nothing was written") from exc
        yield


def _require_listed(found: SetObject, member: SetMember, remote: Remote) -> None:
    """Raise StoreError if a set was replaced, and its name for a shard may be another's by now."""
    folder, name = folder_of(found.path, remote)
    try:
        is_listed = member in read_set(folder.open(name), with_index=False).members
    except StoreNotFound:
        is_listed = False
    if not is_listed:
        raise other_version(found.path)


def _require_unused(path: str, member: SetMember, seal_at: SealAt) -> None:
    """Raise CannotMake if a file of this machine is the shard of another set of its folder, which would lose it."""
    seal = read_seal(path, seal_at) if is_local(path) else None
    if seal is None or (seal.count, seal.file_crc) == (member.count, member.file_crc):
        return
    folder = Path(path).parent
    for name in visible_names(folder):
        if not name.endswith(SET_SUFFIX):
            continue
        try:
            other = current_set(str(folder / name))
        except StoreError:
            continue
        for each in () if other is None else other.members:
            if folder / each.name == Path(path) and (seal.count, seal.file_crc) == (each.count, each.file_crc):
                raise CannotMake(f"{folder / name} lists what has the name now: move one of the sets to another folder")


# Copies: good shards of a set, as another copy of it has them, whatever their names there.

_COPY_BYTES = 16 << 20


class Copies:
    """
    The shards of another copy of a set; see ``repair.Maker``.

    ``path`` names it by its set object, a pattern or a folder, as a path or URL. Its set object may be missing: then
    all files of that folder are looked at that have the right size, and those with the right seal are offered. Raises
    StoreError if the folder cannot be listed or the set object is damaged.
    """

    def __init__(self, path: str, repaired: SetObject, *, remote: Remote = DEFAULT) -> None:
        form = FORMATS[repaired.format]
        self._path, self._set_path, self._members = path, repaired.path, repaired.members
        self._remote = remote
        self._seal_at: SealAt = form.seal_at
        self._listed: Sequence[SetMember] | None = None
        self._sizes: Mapping[str, int] = {}
        if path.endswith(SET_SUFFIX):
            self._folder, name = folder_of(path, remote)
            self._listed = read_set(self._folder.open(name)).members
        else:
            is_pattern = form.is_name(path)
            self._folder = folder_of(path if is_pattern else f"{path.rstrip('/')}/", remote)[0]
            self._sizes = {entry.name: entry.size for entry in self._folder.entries().values()}

    def offers(self, number: int, member: SetMember) -> Iterator[Offer]:
        """See ``repair.Maker``."""
        del number
        for name in self._names_of(member):
            path = self._folder.full(name)
            yield Offer(path, partial(_copy, path, self._remote))

    def check(self) -> None:
        """See ``repair.Maker``."""
        if not any(True for member in self._members for _ in self._names_of(member)):
            raise StoreError(
                f"{self._path}: holds no shard of {self._set_path}: name another copy of the set, or its source"
            )

    def _names_of(self, member: SetMember) -> Iterator[str]:
        if self._listed is not None:
            yield from (other.name for other in self._listed if _content(other) == _content(member))
            return
        for name, size in self._sizes.items():
            if size == member.size and self._has_seal(name, member):
                yield name

    def _has_seal(self, name: str, member: SetMember) -> bool:
        file = self._folder.open(name)
        try:
            seal = seal_of(file, self._seal_at)
        except (StoreCorrupt, StoreIncomplete):
            return False
        finally:
            file.release()
        return (seal.count, seal.file_crc, seal.plan) == _content(member)


def _content(member: SetMember) -> tuple[int, int, int]:
    return member.count, member.file_crc, member.plan


def _copy(path: str, remote: Remote, out: Path) -> None:
    source = open_damaged(path, remote)
    try:
        with writing(str(out)), out.open("wb") as file:
            for start in range(0, source.size, _COPY_BYTES):
                file.write(source.read(start, min(start + _COPY_BYTES, source.size)).data)
    finally:
        source.release()
