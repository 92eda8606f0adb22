"""Copies: good shards of a set, as another copy of it has them, whatever their names there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.atomic import writing
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS
from fastio.store.repair import Offer
from fastio.store.seal import SealAt
from fastio.store.set_names import SET_SUFFIX
from fastio.store.set_object import SetMember, SetObject, read_set
from fastio.store.whole import open_damaged, seal_of

__all__ = ["Copies"]

_COPY_BYTES = 16 << 20


class Copies:
    """
    The shards of another copy of a set; see ``repair.Maker``.

    ``path`` names it by its set object, a pattern or a folder, as a path or URL. Its set object may be missing: then
    all files of that folder are looked at that have the right size, and those with the right seal are offered. Raises
    StoreError if the folder cannot be listed or the set object is damaged.
    """

    def __init__(self, path: str, repaired: SetObject, *, remote: RemoteOptions = DEFAULT) -> None:
        form = FORMATS[repaired.format]
        self._path, self._set_path, self._members = path, repaired.path, repaired.members
        self._remote = remote
        self._seal_at: SealAt = form.seal_at
        self._listed: tuple[SetMember, ...] | None = None
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


def _copy(path: str, remote: RemoteOptions, out: Path) -> None:
    source = open_damaged(path, remote)
    try:
        with writing(str(out)), out.open("wb") as file:
            for start in range(0, source.size, _COPY_BYTES):
                file.write(source.read(start, min(start + _COPY_BYTES, source.size)).data)
    finally:
        source.release()
