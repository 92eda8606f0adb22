"""One set after another under the same names: which numbers are free, who is packing, and which shards may go."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import PartialFile, writing
from fastio.store.files.local import is_local
from fastio.store.listing import visible_names
from fastio.store.set_lookup import current_set
from fastio.store.set_names import SET_SUFFIX
from fastio.store.set_object import SetMember, SetObject
from fastio.store.stale import held_partials, remove_stale
from fastio.store.turns import turn
from fastio.store.write_target import Target, pattern_of
from fastio.types.units import counted

__all__ = ["base_number", "begin_set_object", "free_number", "prepare_set", "remove_replaced"]


def prepare_set(target: Target) -> None:
    """Check that a set may be written here, and remove what killed packers of it have left. Raises StoreError."""
    target.check()
    with writing(target.path):
        for pattern in (target.pattern, pattern_of(Path(target.set_path).name)):
            remove_stale(target.folder, pattern)


def begin_set_object(target: Target) -> PartialFile:
    """
    Return the set object to be written at the end. Its lock tells other packers that this one is at work.

    Raises StoreError if another process packs a set of this name.
    """
    with ExitStack() as undo:
        with writing(target.path), turn(target.set_path):
            prepare_set(target)
            _require_nobody(target)
            file = PartialFile(target.set_path)
            undo.callback(file.discard)
        undo.pop_all()
    return file


def _require_nobody(target: Target) -> None:
    for pattern in (target.pattern, pattern_of(Path(target.set_path).name)):
        for name in held_partials(target.folder, pattern):
            raise StoreError(
                f"{target.path}: another process is packing this set (it holds {target.folder / name}): wait for it, "
                "or choose another name. If none is, the file system has no locks: remove that file"
            )


def base_number(target: Target, known: SetObject | None, count: int) -> int:
    """
    Return the number of the first of ``count`` shards of a plan: 0, unless the ``known`` current set lists one of
    these names; then one above the highest that it lists.
    """
    numbers = _numbers(target, known)
    return 0 if not numbers or min(numbers) >= count else max(numbers) + 1


def free_number(target: Target, known: SetObject | None) -> int:
    """Return the lowest number above all that files or the ``known`` current set have; 0 if there are none."""
    there = [target.number_of(name) for name in visible_names(target.folder)]
    return max([number for number in there if number is not None] + _numbers(target, known), default=-1) + 1


def _numbers(target: Target, known: SetObject | None) -> list[int]:
    numbers = [target.number_of(member.name) for member in (known.members if known is not None else ())]
    return [number for number in numbers if number is not None]


def remove_replaced(target: Target, members: Collection[SetMember]) -> None:
    """
    Remove the files under the names of shards that a new, complete set does not list.

    Shards that another set object of the folder lists stay. Raises StoreError if a file cannot be removed.
    """
    kept = {member.name for member in members}
    old = [name for name in visible_names(target.folder) if target.pattern.fullmatch(name) and name not in kept]
    if not old:
        return
    try:
        kept |= _listed_by_others(target)
    except StoreError as exc:
        raise _incomplete_removal(target, old, str(exc)) from exc
    failed: list[str] = []
    problem = ""
    for name in old:
        if name in kept:
            continue
        try:
            (target.folder / name).unlink(missing_ok=True)
        except OSError as exc:
            failed.append(name)
            problem = f"{exc.strerror or exc}"
    if failed:
        raise _incomplete_removal(target, failed, problem)


def _listed_by_others(target: Target) -> set[str]:
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
