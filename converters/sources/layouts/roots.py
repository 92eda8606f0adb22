"""Roots of datasets: which part is meant, which folder holds the files that annotations name, and what nobody names."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath, junk_reason, names_in, shown
from fastio.store.kinds.unknown import look

__all__ = [
    "chosen_part",
    "find_root",
    "left_beside",
]


_SHOWN = 10  # parts in a message
_ALIKE = (("train", "training"), ("val", "valid", "validation", "dev"), ("test", "testing", "t10k"))  # splits
_LOOKED_AT = 100  # names that a folder must hold
_KINDS_SHOWN = 4  # extensions in a message

Part = TypeVar("Part")


def chosen_part(
    path: str, parts: Mapping[str, Part], split: str | None, what: str, expected: str = ""
) -> tuple[str, Part]:
    """
    Return the name and the value of the part that ``split`` means: the one of this name, or whose last word it is,
    digits apart (``train`` is ``instances_train2017``, ``val`` is ``valid``). Without ``split``, there must be one part
    alone.

    Raises SourceError that lists the parts with the command for each, or says what was ``expected`` if there are none;
    ``what`` is what one of them is called.
    """
    if not parts:
        raise SourceError(f"{path}: expected {expected or f'a {what}'}, found none")
    names = list(parts)
    if split is not None:
        alike = next((words for words in _ALIKE if split in words), (split,))
        ends = re.compile(rf"(?:.*[^A-Za-z])?(?:{'|'.join(map(re.escape, alike))})[0-9]*\Z", re.IGNORECASE)
        names = [name for name in parts if name == split] or [name for name in parts if ends.match(name)]
    if len(names) == 1:
        return names[0], parts[names[0]]
    listed = ", ".join(map(repr, names[:_SHOWN] or list(parts)[:_SHOWN]))
    some = names or list(parts)
    commands = " or ".join(
        f"`fastio pack {shlex.quote(path)} {shlex.quote(f'{name}.lmdb')} --split {shlex.quote(name)}`"
        for name in some[:2]
    )
    if split is not None and not names:
        alone = f"fastio pack {shlex.quote(str(Path(path, split)))} {shlex.quote(f'{split}.lmdb')}"
        folder = f"; `{alone}` packs that folder alone" if Path(path, split).is_dir() else ""
        raise SourceError(f"{path}: has no {what} {split!r} for --split, only {listed}: {commands}{folder}")
    of_split = "" if split is None else f" of {split!r}"
    raise SourceError(
        f"{path}: has {len(names)} {what}s{of_split}, {listed}: choose one, as in {commands}; where it lies: "
        f"FastDataset({path!r}, unpacked=Unpacked(split={some[0]!r}))"
    )


def find_root(path: str, root: str | None, names: Sequence[Any]) -> str:
    """
    Return the folder that names are relative to: ``root``, or the one that holds the first images.

    That may be the folder of the file ``path`` that gives the names, one in it, or one beside it or in ``images``
    beside it; the nearest counts. Raises SourceError if none of them holds any, or if several equally near ones do.
    """
    if root is not None:
        return os.path.realpath(root)
    here = Path(os.path.realpath(path)).parent
    some = [name for name in names if isinstance(name, str) and name and "\0" not in name and name[0] != "/"]
    del some[_LOOKED_AT:]
    roots: list[str] = []
    for folders in _candidates(here):
        counts = {os.path.realpath(folder): sum(_is_file(folder, name) for name in some) for folder in folders}
        most = max(counts.values(), default=0)
        roots = [folder for folder, count in counts.items() if count == most > 0]
        if roots:
            break
    if len(roots) == 1:
        return roots[0]
    both = f"{' and '.join(map(repr, roots))} hold them equally"
    found = both if roots else f"no folder in or beside {str(Path(path).parent)!r} does"
    first = repr(some[0]) if some else "none"
    raise SourceError(f"{path}: which folder holds its images (the first is {first})? {found}: name it with --root DIR")


def _candidates(here: Path) -> Iterator[list[Path]]:
    """The folder itself, those in it, and those beside it and in ``images`` beside it: the nearest first."""
    yield [here]
    yield _folders_in(here)
    yield [*_folders_in(here.parent), *_folders_in(here.parent / "images")]


def _folders_in(above: Path) -> list[Path]:
    return [above / name for name in names_in(str(above))[0]]


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # too long, half a character
        return False


def left_beside(
    place: SourcePath, root: str, names: Iterable[str], files: Sequence[str] = (), *, fields: Sequence[str] = ()
) -> list[Problem]:
    """
    Return what lies beside the files ``names`` below the folder ``root``, counted by kind: an entry for each folder.

    These are the files that ``names`` do not name in the folders of those that they do, and, if the source itself is a
    folder, all else in it but ``files``, paths of what annotates them, and the folders ``fields``, taken whole.
    """
    here = os.path.realpath(place.path)
    pictures = _by_folder(f"{root}/{name}" for name in names if name)
    annotations = _by_folder(files)
    whole = set(map(os.path.realpath, fields))
    left_out = []
    for folder, named in pictures.items():
        if folder not in whole and (folder != here or not place.is_folder):
            left_out += _others(folder, here, named | annotations.get(folder, set()))
    if place.is_folder:
        inside = {*pictures, *whole} - {here}
        above = {str(each) for folder in (*inside, *annotations) for each in Path(folder).parents}
        taken = {**annotations, here: annotations.get(here, set()) | pictures.get(here, set())}
        left_out += _beside(here, here, taken, inside, above | annotations.keys())
    return left_out


def _by_folder(paths: Iterable[str]) -> dict[str, set[str]]:
    """The names of files by their folders, links followed."""
    given: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        given.setdefault(folder, set()).add(name)
    found: dict[str, set[str]] = {}
    for folder, names in given.items():
        found.setdefault(os.path.realpath(folder), set()).update(names)
    return found


def _others(folder: str, here: str, named: Collection[str]) -> list[Problem]:
    """An entry for all files of a folder that are not named."""
    others = [name for name in names_in(folder)[1] if name not in named and not junk_reason(name)]
    if not others:
        return []
    counts = Counter(Path(name).suffix.lower() or "without extension" for name in others)
    words = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common(_KINDS_SHOWN))
    reason = f"nothing names it; in its folder, that is true of {words}"
    return [Problem(_shown_below(f"{folder}/{others[0]}", here), reason)]


def _beside(
    folder: str, here: str, taken: Mapping[str, Collection[str]], inside: Collection[str], above: Collection[str]
) -> list[Problem]:
    """What is in a folder but ``taken``: each file, and each folder that is not ``inside``, nor ``above`` what is."""
    folders, files = names_in(folder)
    left_out = [
        Problem(_shown_below(f"{folder}/{name}", here), junk_reason(name) or "is not of this part")
        for name in files
        if name not in taken.get(folder, ())
    ]
    for name in folders:
        path = os.path.realpath(f"{folder}/{name}")
        if path in inside:
            continue
        if path in above and path == f"{folder}/{name}":  # links are not followed: they may lead in circles
            left_out += _beside(path, here, taken, inside, above)
        else:
            key = _shown_below(f"{folder}/{name}", here)
            left_out.append(Problem(f"{key}/", f"is not of this part: {look(f'{folder}/{name}')}"))
    return left_out


def _shown_below(path: str, here: str) -> str:
    return shown(path[len(here) + 1 :] if path.startswith(f"{here}/") else path.rpartition("/")[2])
