"""Where a writer writes: one file, or the shards of a set; and one set after another under the same names."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.address import target_format
from fastio.store.files.local import is_local
from fastio.store.formats.format import Format
from fastio.store.index.seal import read_seal
from fastio.store.listing import check_no_journal, remove_stale, visible_names
from fastio.store.sets.names import SET_SUFFIX, NumberedName, set_path
from fastio.store.sets.set_object import SetMember, SetObject, current_set
from fastio.store.write.atomic import PartialFile, exists, undisturbed, writing
from fastio.store.write.locks import Claim, packer_of, turn
from fastio.types.units import counted

__all__ = [
    "Target",
    "base_number",
    "begin_set_object",
    "free_number",
    "listed_by_others",
    "prepare_set",
    "remove_replaced",
]


_NEARLY_NUMBER = re.compile(r"%[-+ #.0-9]*[diusx]")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a writer writes: ``path`` is one file, or shards if its name contains ``%06d`` or ``%d``."""

    path: str
    format: Format
    overwrite: bool

    @classmethod
    def of(cls, path: str, *, overwrite: bool) -> Target:
        """Return what to write under this name, whose suffix says the format. Raises StoreError for another suffix."""
        return cls(path, target_format(path), overwrite)

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return Path(self.path).parent

    @property
    def is_set(self) -> bool:
        """Whether this names shards."""
        return self.numbered is not None

    @property
    def numbered(self) -> NumberedName | None:
        """The name of all shards; None for one file."""
        return NumberedName.parse(Path(self.path).name)

    @property
    def set_path(self) -> str:
        """The path of the set object of the shards."""
        return set_path(self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the final names, without the folder; its group, if there is one, is the number of a shard."""
        numbered = self.numbered
        return re.compile(re.escape(Path(self.path).name)) if numbered is None else numbered.pattern

    def shard(self, number: int) -> str:
        """Return the path of one shard; the path itself if there is only one file."""
        numbered = self.numbered
        return self.path if numbered is None else str(Path(self.path).with_name(numbered.of(number)))

    def number_of(self, name: str) -> int | None:
        """Return the number in the name of a shard; None for another name."""
        numbered = self.numbered
        found = None if numbered is None else numbered.pattern.fullmatch(name)
        return None if found is None else int(found[1])

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
        numbered = self.numbered
        odd = _NEARLY_NUMBER.search(Path(self.path).name if numbered is None else numbered.before + numbered.after)
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
            packer = packer_of(self.set_path)
            if packer:
                return StoreError(
                    f"{self.path}: another process is packing this set ({packer}): wait for it, or choose another name"
                )
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


# One set after another under the same names: which numbers are free, and which shards may go.


def prepare_set(target: Target) -> None:
    """Check that a set may be written here, and remove what killed packers of it have left. Raises StoreError."""
    target.check()
    with writing(target.path):
        for pattern in (target.pattern, re.compile(re.escape(Path(target.set_path).name))):
            remove_stale(target.folder, pattern)


def begin_set_object(target: Target) -> tuple[PartialFile, Claim]:
    """
    Return the set object to be written at the end, and the claim to the set, to be released then.

    Raises StoreError if another process packs a set of this name.
    """
    replace(target, overwrite=True).check()  # first of all the folder
    with ExitStack() as undo:
        with writing(target.path), turn(target.set_path):
            with undisturbed():
                claim = Claim(target.set_path)
                undo.callback(claim.release)
            prepare_set(target)
            file = PartialFile(target.set_path)
            undo.callback(file.discard)
        undo.pop_all()
    return file, claim


def base_number(target: Target, taken: Iterable[str], count: int) -> int:
    """
    Return the number of the first of ``count`` shards of a plan: 0, unless one of these names is ``taken``; then one
    above the highest that is.
    """
    numbers = [number for name in taken if (number := target.number_of(name)) is not None]
    return 0 if not numbers or min(numbers) >= count else max(numbers) + 1


def free_number(target: Target, known: SetObject | None) -> int:
    """Return the lowest number above all that files or the ``known`` current set have; 0 if there are none."""
    listed = [member.name for member in known.members] if known is not None else []
    numbers = map(target.number_of, [*visible_names(target.folder), *listed])
    return max((number for number in numbers if number is not None), default=-1) + 1


def remove_replaced(target: Target, members: Collection[SetMember]) -> None:
    """
    Remove the files under the names of shards that a new, complete set does not list.

    Shards that another set object of the folder lists stay; all stay if the new set was replaced meanwhile. Raises
    StoreError if a file cannot be removed.
    """
    kept = {member.name for member in members}
    if not _not_in(target, kept):
        return
    try:
        with turn(target.set_path):
            current = current_set(target.set_path)
            if current is None or {member.name for member in current.members} != kept:
                return
            failed, problem = _remove_unless(target, kept | listed_by_others(target))
    except (StoreError, OSError) as exc:
        failed, problem = _not_in(target, kept), str(getattr(exc, "strerror", None) or exc)
        raise _incomplete_removal(target, failed, problem) from exc
    if failed:
        raise _incomplete_removal(target, failed, problem)


def _remove_unless(target: Target, kept: Collection[str]) -> tuple[list[str], str]:
    """Remove the shards but those to be kept. Returns the names of those that could not be removed, and why."""
    failed: list[str] = []
    problem = ""
    for name in _not_in(target, kept):
        try:
            (target.folder / name).unlink(missing_ok=True)
        except OSError as exc:
            failed.append(name)
            problem = f"{exc.strerror or exc}"
    return failed, problem


def _not_in(target: Target, kept: Collection[str]) -> list[str]:
    return [name for name in visible_names(target.folder) if target.pattern.fullmatch(name) and name not in kept]


def listed_by_others(target: Target) -> set[str]:
    """Return the names here that other set objects of the folder list. Raises StoreError if one cannot be read."""
    own = Path(target.set_path).name
    others = [name for name in visible_names(target.folder) if name.endswith(SET_SUFFIX) and name != own]
    sets = [current_set(str(target.folder / name)) for name in others]
    return {_name_here(target, member) for each in sets if each is not None for member in each.members}


def _name_here(target: Target, member: SetMember) -> str:
    """Return a member's name in the folder of the target; what lies elsewhere stays as it is named."""
    path = Path(member.name)
    return path.name if is_local(member.name) and path.parent == target.folder.absolute() else member.name


def _incomplete_removal(target: Target, old: Collection[str], problem: str) -> StoreError:
    first = sorted(old)[0]
    return StoreError(
        f"{target.set_path}: the new set is complete, but {counted(len(old), 'shard')} of the one that it replaces "
        f"could not be removed, e.g. {first} ({problem}): remove what this set does not list"
    )
