"""What a path given by a user means: one file, shards to be written, shards to be read."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastio.errors import StoreError, StoreNotFound
from fastio.store.atomic import exists, remove_stale, writing
from fastio.store.format import Format

__all__ = ["Target", "expand", "match_format", "target_format"]

_NUMBER = re.compile(r"%(?:0(\d+))?d")  # %06d or %d
_NEARLY_NUMBER = re.compile(r"%[-+ #.0-9]*[diusx]")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAX_RANGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """
    Where a writer writes: ``path`` is one file, or shards when its name contains ``%06d`` or ``%d``.
    """

    path: str
    format: Format
    overwrite: bool

    @property
    def is_set(self) -> bool:
        """Whether this names shards."""
        return _NUMBER.search(Path(self.path).name) is not None

    def shard(self, index: int) -> str:
        """The name of one shard; the path itself where there is only one file."""
        number = _NUMBER.search(Path(self.path).name)
        if number is None:
            return self.path
        name = Path(self.path).name
        return str(
            Path(self.path).with_name(f"{name[: number.start()]}{index:0{number[1] or 1}d}{name[number.end() :]}")
        )

    def check(self) -> None:
        """StoreError where nothing could be written under this name; changes nothing."""
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise StoreError(f"{self.path}: the folder {folder} does not exist; create it first")
        odd = _NEARLY_NUMBER.search(_NUMBER.sub("", Path(self.path).name, count=1))
        if odd is not None:
            raise StoreError(
                f"{self.path}: {odd[0]!r} would stay in the name as it is; the number of a shard is one %06d or %d"
            )
        self.check_free()

    def prepare(self) -> None:
        """Check the target, and clear away what dead writers of it left."""
        self.check()
        with writing(self.path):
            remove_stale(Path(self.path).parent, self._pattern())

    def check_free(self) -> None:
        """StoreError where something lies under a final name that must not be replaced."""
        existing = self.existing()
        if existing and not self.overwrite:
            raise exists(existing[0])
        for path in existing:
            if Path(path).is_dir():
                raise StoreError(f"{path}: is a folder and will not be replaced; choose another name")

    def existing(self) -> list[str]:
        """What lies under the final names, sorted."""
        folder = Path(self.path).parent
        if not self.is_set:
            return [self.path] if os.path.lexists(self.path) else []
        return sorted(str(folder / name) for name in _names(folder) if self._pattern().fullmatch(name))

    def leftovers(self, count: int) -> Sequence[str]:
        """Shards of an older set that the new one, of ``count`` shards, does not replace, but may remove."""
        if not self.overwrite:
            return []
        new = {self.shard(i) for i in range(count)}
        return [path for path in self.existing() if path not in new]

    def _pattern(self) -> re.Pattern[str]:
        return _pattern(Path(self.path).name)


def match_format(path: str, formats: Mapping[str, Format]) -> Format:
    """The format that a path's suffix names; a folder holds tar shards."""
    name = os.path.basename(os.path.normpath(path))  # noqa: PTH119 - pathlib would read a glob's slashes alike
    for each in formats.values():
        if name.endswith(each.suffixes):
            return each
    if Path(path).is_dir() and "tar" in formats:
        return formats["tar"]
    known = ", ".join(suffix for each in formats.values() for suffix in each.suffixes)
    expected = f"expected a name that ends in one of {known}, or a folder of .tar shards"
    if not os.path.lexists(path):
        raise StoreNotFound(f"{path}: no such file or folder; {expected}")
    raise StoreError(f"{path}: {expected}")


def target_format(path: str, formats: Mapping[str, Format]) -> Format:
    """The format that a file to be written has by its suffix."""
    for each in formats.values():
        if path.endswith(each.suffixes):
            return each
    known = ", ".join(suffix for each in formats.values() for suffix in each.suffixes)
    raise StoreError(f"{path}: expected a name that ends in one of {known}; shards are named name-%06d.tar")


def expand(path: str) -> list[str]:
    """
    The files behind a path: itself, ``{000000..000009}``, ``%06d``, a glob, or a folder of ``.tar`` shards.

    Sorted by name; StoreNotFound where a pattern finds nothing. Files of a brace range need not exist.
    """
    if Path(path).is_dir():
        found: Iterable[str] = (str(Path(path) / name) for name in _names(Path(path)) if name.endswith(".tar"))
        return _some(
            found, f"{path}: a folder without .tar shards; name a store, or pack it: fastio pack {path} NAME.lmdb"
        )
    if os.path.lexists(path):
        return [path]
    braces = _RANGE.search(path)
    if braces is not None:
        first, last = int(braces[1]), int(braces[2])
        if not 0 <= last - first < _MAX_RANGE:
            raise StoreError(f"{path}: expected a range that ascends, up to {_MAX_RANGE} shards, got {braces[0]}")
        width = len(braces[1])
        return [f"{path[: braces.start()]}{i:0{width}d}{path[braces.end() :]}" for i in range(first, last + 1)]
    if _NUMBER.search(Path(path).name):
        folder, pattern = Path(path).parent, _pattern(Path(path).name)
        found = (str(folder / name) for name in _names(folder) if pattern.fullmatch(name))
        return _some(found, f"{path}: no such shards; check the name, or pack the dataset first")
    if glob.has_magic(path):
        return _some(glob.glob(path), f"{path}: matches no file; check the pattern")  # noqa: PTH207 - keeps "./"
    return [path]


def _some(found: Iterable[str], message: str) -> list[str]:
    paths = sorted(found)
    if not paths:
        raise StoreNotFound(message)
    return paths


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.name.startswith(".")]


def _pattern(name: str) -> re.Pattern[str]:
    """A regular expression for the final names that ``name`` stands for."""
    number = _NUMBER.search(name)
    if number is None:
        return re.compile(re.escape(name))
    digits = rf"\d{{{number[1]},}}" if number[1] else r"(?:0|[1-9]\d*)"
    before, after = re.escape(name[: number.start()]), re.escape(name[number.end() :])
    return re.compile(before + digits + after)
