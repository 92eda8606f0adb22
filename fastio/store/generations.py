"""One set after another under the same names: which numbers are free, and which shards may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import PartialFile, writing
from fastio.store.files.local import is_local
from fastio.store.listing import visible_names
from fastio.store.set_lookup import current_set
from fastio.store.set_names import SET_SUFFIX
from fastio.store.set_object import SetMember, SetObject
from fastio.store.stale import remove_stale
from fastio.store.turns import Claim, turn
from fastio.store.undisturbed import undisturbed
from fastio.store.write_target import Target, pattern_of
from fastio.types.units import counted

__all__ = ["base_number", "begin_set_object", "free_number", "listed_by_others", "prepare_set", "remove_replaced"]


def prepare_set(target: Target) -> None:
    """Check that a set may be written here, and remove what killed packers of it have left. Raises StoreError."""
    target.check()
    with writing(target.path):
        for pattern in (target.pattern, pattern_of(Path(target.set_path).name)):
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
