"""Where a writer writes: one file, or the shards of a set and its set object."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import exists
from fastio.store.files.local import is_local
from fastio.store.format import Format
from fastio.store.listing import check_no_journal, visible_names
from fastio.store.seal import read_seal
from fastio.store.set_names import set_path
from fastio.store.target import NUMBER, number_pattern
from fastio.types.units import counted

__all__ = ["Target", "pattern_of"]

_NEARLY_NUMBER = re.compile(r"%[-+ #.0-9]*[diusx]")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a writer writes: ``path`` is one file, or shards if its name contains ``%06d`` or ``%d``."""

    path: str
    format: Format
    overwrite: bool

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return Path(self.path).parent

    @property
    def is_set(self) -> bool:
        """Whether this names shards."""
        return NUMBER.search(Path(self.path).name) is not None

    @property
    def set_path(self) -> str:
        """The path of the set object of the shards."""
        return set_path(self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the final names, without the folder; its group, if there is one, is the number of a shard."""
        return pattern_of(Path(self.path).name)

    def shard(self, number: int) -> str:
        """Return the path of one shard; the path itself if there is only one file."""
        name = Path(self.path).name
        found = NUMBER.search(name)
        if found is None:
            return self.path
        return str(Path(self.path).with_name(f"{name[: found.start()]}{number:0{found[1] or 1}d}{name[found.end() :]}"))

    def number_of(self, name: str) -> int | None:
        """Return the number in the name of a shard; None for another name."""
        found = self.pattern.fullmatch(name)
        return int(found[1]) if found is not None and self.is_set else None

    def check(self) -> None:
        """Raise StoreError if nothing can be written under this name; changes nothing."""
        if not is_local(self.path):
            if self.path.lower().startswith(("http://", "https://")):
                raise StoreError(
                    f"{self.path}: a web server takes no files: pack to its object store (s3://, gs://, az://), or to "
                    "this machine"
                )
            if not self.is_set:
                raise StoreError(f"{self.path}: only shards are packed into object stores: name them name-%06d.tar")
        elif not self.folder.is_dir():
            raise StoreError(f"{self.path}: the folder {self.folder} does not exist: create it first")
        odd = _NEARLY_NUMBER.search(NUMBER.sub("", Path(self.path).name, count=1))
        if odd is not None:
            raise StoreError(
                f"{self.path}: {odd[0]!r} would stay in the name unchanged; the number of a shard is one %06d or %d"
            )
        if is_local(self.path):
            check_no_journal(self.path)
            self.check_free()

    def check_free(self) -> None:
        """Raise StoreError if a final name is taken and must not be replaced."""
        existing = self.existing()
        if existing and not self.overwrite:
            raise self._taken(existing)
        for path in existing:
            if Path(path).is_dir():
                raise StoreError(f"{path}: is a folder and will not be replaced: choose another name")
            if not self.is_set:
                self._check_alone(path)

    def existing(self) -> list[str]:
        """Return what lies under the final names: of a set first its set object, then files that may be its shards."""
        if not self.is_set:
            return [self.path] if os.path.lexists(self.path) else []
        pattern = self.pattern
        shards = [str(self.folder / name) for name in visible_names(self.folder) if pattern.fullmatch(name)]
        return [self.set_path, *shards] if os.path.lexists(self.set_path) else shards

    def _taken(self, existing: Sequence[str]) -> StoreError:
        if self.is_set and existing[0] != self.set_path:
            seal = read_seal(existing[0], self.format.seal_at)
            if seal is not None and seal.is_alone:
                verb = "is" if len(existing) == 1 else "are"
                return StoreError(
                    f"{self.path}: {counted(len(existing), 'shard')} of a pack that was interrupted {verb} there, e.g. "
                    f"{Path(existing[0]).name}, and no set object: go on with --resume, or start anew with "
                    "--overwrite (in Python overwrite=True)"
                )
        return exists(existing[0])

    def _check_alone(self, path: str) -> None:
        """Raise StoreError for a shard of a set: without it, the others would be lost too."""
        seal = read_seal(path, self.format.seal_at)
        if seal is not None and seal.shards != 1:
            count = f"a set of {seal.shards}" if seal.shards else "a set"
            raise StoreError(
                f"{path}: is shard {seal.shard} of {count}, which would be lost without it: choose another name, or "
                "replace the whole set by naming the shards with %06d"
            )


def pattern_of(name: str) -> re.Pattern[str]:
    """Return a regular expression for the final names that ``name`` stands for; of shards its group is the number."""
    return number_pattern(name) or re.compile(re.escape(name))
