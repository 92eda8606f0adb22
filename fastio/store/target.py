"""What a path given by a user means: one file, shards to write, shards to read."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastio.errors import StoreError, StoreNotFound
from fastio.store import formats
from fastio.store.atomic import exists, writing
from fastio.store.format import Format
from fastio.store.journal import journal_path, recover
from fastio.store.listing import located, shard_names
from fastio.store.seal import read_seal
from fastio.store.stale import remove_stale

__all__ = ["Target", "expand", "match_format", "number_pattern", "ranged", "target_format"]

_NUMBER = re.compile(r"%(?:0(\d+))?d")  # %06d or %d
_NEARLY_NUMBER = re.compile(r"%[-+ #.0-9]*[diusx]")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAX_RANGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where a writer writes: ``path`` is one file, or shards if its name contains ``%06d`` or ``%d``."""

    path: str
    format: Format
    overwrite: bool

    @property
    def is_set(self) -> bool:
        """Whether this names shards."""
        return _NUMBER.search(Path(self.path).name) is not None

    def shard(self, index: int) -> str:
        """Return the name of one shard; the path itself if there is only one file."""
        number = _NUMBER.search(Path(self.path).name)
        if number is None:
            return self.path
        name = Path(self.path).name
        return str(
            Path(self.path).with_name(f"{name[: number.start()]}{index:0{number[1] or 1}d}{name[number.end() :]}")
        )

    def check(self) -> None:
        """Raise StoreError if nothing can be written under this name; changes nothing."""
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise StoreError(f"{self.path}: the folder {folder} does not exist: create it first")
        odd = _NEARLY_NUMBER.search(_NUMBER.sub("", Path(self.path).name, count=1))
        if odd is not None:
            raise StoreError(
                f"{self.path}: {odd[0]!r} would stay in the name unchanged; the number of a shard is one %06d or %d"
            )
        self.check_free()

    def prepare(self) -> None:
        """Check the target, carry out what dead writers of it had committed, and remove what else they left."""
        self.check()
        with writing(self.path):
            recover(journal_path(self.path))
            remove_stale(Path(self.path).parent, self._pattern())

    def check_free(self) -> None:
        """Raise StoreError if a final name is taken and must not be replaced."""
        existing = self.existing()
        if existing and not self.overwrite:
            raise exists(existing[0])
        for path in existing:
            if Path(path).is_dir():
                raise StoreError(f"{path}: is a folder and will not be replaced: choose another name")
            if not self.is_set:
                self._check_alone(path)

    def _check_alone(self, path: str) -> None:
        """Raise StoreError for a shard of a set: without it, the others would be lost too."""
        seal = read_seal(path, self.format.seal_at)
        if seal is not None and seal.shards > 1:
            raise StoreError(
                f"{path}: is shard {seal.shard} of a set of {seal.shards}, which would be lost without it: choose "
                "another name, or replace the whole set by naming the shards with %06d"
            )

    def existing(self) -> list[str]:
        """Return what lies under the final names, sorted, including shards that are still to be named."""
        folder = Path(self.path).parent
        if not self.is_set:
            is_there = os.path.lexists(self.path) or located([self.path], carry_out=False) != [self.path]
            return [self.path] if is_there else []
        names = shard_names(folder, carry_out=False)
        return sorted(str(folder / name) for name in names if self._pattern().fullmatch(name))

    def leftovers(self, count: int) -> Sequence[str]:
        """Return shards of an older set that the new one, of ``count`` shards, does not replace, but may remove."""
        if not self.overwrite:
            return []
        new = {self.shard(i) for i in range(count)}
        return [path for path in self.existing() if path not in new]

    def _pattern(self) -> re.Pattern[str]:
        return _pattern(Path(self.path).name)


def match_format(path: str) -> Format:
    """Return the format of a store to read: by its suffix, or by the shards in the folder of this name."""
    form = formats.named(os.path.basename(os.path.normpath(path)))  # noqa: PTH119 - pathlib would read a glob's slashes alike
    if form is not None:
        return form
    if Path(path).is_dir():
        return formats.of_folder(path)
    expected = f"expected a name that ends in one of {formats.suffixes()}, or a folder of shards"
    if not os.path.lexists(path):
        raise StoreNotFound(f"{path}: no such file or folder; {expected}")
    raise StoreError(f"{path}: {expected}")


def target_format(path: str) -> Format:
    """Return the format of a file to write, by its suffix."""
    form = formats.named(path)
    if form is None:
        shards = formats.shard_suffixes()[0]
        raise StoreError(
            f"{path}: expected a name that ends in one of {formats.suffixes()}; shards are named name-%06d{shards}"
        )
    return form


def expand(path: str, form: Format) -> list[str]:
    """
    Return the files behind a path: itself, ``{000000..000009}``, ``%06d``, a glob, or a folder of this format's
    shards.

    They are sorted by the shards' names. Raises StoreNotFound if a pattern finds nothing; files of a brace range need
    not exist. If a packer was killed while it named the shards of a complete set, that is finished first, or the
    files include those that have no name yet.
    """
    if Path(path).is_dir():
        return _matching([path], form.is_name, f"{path}: a folder without {form.name} shards: name a store")
    if os.path.lexists(path):
        return located([path], carry_out=True)
    shards = ranged(path)
    if shards is not None:
        return located(shards, carry_out=True)
    folder, name = os.path.split(path)
    pattern = number_pattern(name)
    if pattern is not None:
        return _matching(
            [folder],
            lambda name: pattern.fullmatch(name) is not None,
            f"{path}: no such shards: check the name, or pack the dataset first",
        )
    if glob.has_magic(path):
        matches = re.compile(fnmatch.translate(name)).match
        folders = glob.glob(folder) if glob.has_magic(folder) else [folder]  # noqa: PTH207 - keeps "./"
        return _matching(folders, lambda name: matches(name) is not None, f"{path}: matches no file: check the pattern")
    return located([path], carry_out=True)


def ranged(path: str) -> list[str] | None:
    """
    Return the paths that a range of numbers in braces stands for; None without one.

    >>> ranged("s3://bucket/in-{08..10}.tar")
    ['s3://bucket/in-08.tar', 's3://bucket/in-09.tar', 's3://bucket/in-10.tar']
    """
    braces = _RANGE.search(path)
    if braces is None:
        return None
    first, last = int(braces[1]), int(braces[2])
    if not 0 <= last - first < _MAX_RANGE:
        raise StoreError(f"{path}: expected an ascending range of at most {_MAX_RANGE} shards, got {braces[0]}")
    width = len(braces[1])
    return [f"{path[: braces.start()]}{i:0{width}d}{path[braces.end() :]}" for i in range(first, last + 1)]


def number_pattern(name: str) -> re.Pattern[str] | None:
    """Return a regular expression for the names that one with ``%06d`` or ``%d`` stands for; None for another name."""
    return None if _NUMBER.search(name) is None else _pattern(name)


def _matching(folders: Sequence[str], is_meant: Callable[[str], bool], message: str) -> list[str]:
    """Return where the shards lie whose names are meant, in the order of their names."""
    found: dict[str, str] = {}
    for folder in folders:
        names = shard_names(Path(folder), carry_out=True)
        for name in filter(is_meant, names):
            found[os.path.join(folder, name)] = os.path.join(folder, names[name])  # noqa: PTH118 - keeps "./"
    if not found:
        raise StoreNotFound(message)
    return [found[name] for name in sorted(found)]


def _pattern(name: str) -> re.Pattern[str]:
    """Return a regular expression for the final names that ``name`` stands for."""
    number = _NUMBER.search(name)
    if number is None:
        return re.compile(re.escape(name))
    digits = rf"\d{{{number[1]},}}" if number[1] else r"(?:0|[1-9]\d*)"
    before, after = re.escape(name[: number.start()]), re.escape(name[number.end() :])
    return re.compile(before + digits + after)
