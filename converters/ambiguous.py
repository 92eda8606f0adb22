"""Refuses folders that look like classes but hardly are: parts of a dataset, or fields of a sample."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from fastio.converters.junk import is_hidden
from fastio.converters.labels import LABEL_SUFFIXES
from fastio.converters.scan import check_exists
from fastio.converters.shard_files import split_pattern
from fastio.converters.source import Problem
from fastio.errors import SourceError

__all__ = ["refuse_fields", "refuse_one_class", "refuse_splits", "split_folder"]

_SPLITS = frozenset(["train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"])
_WORD = re.compile(r"[a-z]+")
_PICTURES = re.compile(r"(?:.*_)?(?:images?|imgs?|pictures?|photos?|rgb|inputs?)\Z")
_FIELDS = re.compile(
    r"(?:.*_)?(?:images?|jpegimages|imgs?|pictures?|photos?|rgb|masks?|labels?|annotations?|annots?|seg(?:mentations?)?|gts?|"
    r"ground_?truths?|depths?|normals?|edges?|inputs?|targets?|lr|hr)\Z"
)
_SHOWN = 10  # folders listed in a message
_MOST_FOLDERS = 32  # with more of them nobody keeps fields of one sample
_NUMBERED = re.compile(r"(.*?)([0-9]+)\Z", re.DOTALL)


def split_folder(path: str, split: str) -> str:
    """
    Return the folder of one part of a dataset, ``path/split``, or a pattern of the files of that name in ``path``.

    Raises SourceError that lists the existing folders if there are neither.
    """
    check_exists(path)
    folder = Path(path, split)
    if folder.is_dir() and Path(split).name == split != "..":
        return str(folder)
    if pattern := split_pattern(path, split):
        return pattern
    there = sorted(each.name for each in Path(path).iterdir() if each.is_dir()) if Path(path).is_dir() else []
    more = ", ..." if len(there) > _SHOWN else ""
    found = f"its folders are {', '.join(map(repr, there[:_SHOWN]))}{more}" if there else "it has no folders"
    raise SourceError(f"{path}: has no folder {split!r} for --split; {found}")


def refuse_splits(path: str, folders: Sequence[str], kind: str = "imagefolder") -> None:
    """
    Raise SourceError if class folders are named like parts of a dataset: two of them, or all.

    ``kind`` is the kind of source that treats them as classes.
    """
    visible = [name for name in folders if not is_hidden(name)]
    splits = [name for name in visible if name.lower() in _SPLITS]
    if len({_split_word(name) for name in visible} - {""}) > 1 and all(map(_split_word, visible)):
        splits = visible  # train2017 and val2017, seg_train and seg_test
    if not splits or (len(splits) == 1 and len(visible) > 1):
        return
    named = _listed(splits)
    is_one = len(splits) == 1
    what = "seems to be a part of a dataset, not a class" if is_one else "seem to be parts of a dataset, not classes"
    commands = " and ".join(f"`{_split_command(path, name)}`" for name in splits[:3])
    raise SourceError(
        f"{path}: {named} {what}: pack {'it' if is_one else 'each'} by itself, {commands}; "
        f"--source-kind {kind} packs all folders as classes"
    )


def refuse_one_class(path: str, classes: Sequence[str], keys: Sequence[str], problems: Collection[Problem]) -> None:
    """
    Raise SourceError if a folder has one class folder alone, or none that holds pictures and is not named like a field
    (``images`` beside ``annotations``): the classes, if there are any, lie further down.

    ``keys`` are those of the pictures, ``problems`` what else was found. The error says what to type for each meaning.
    """
    holders = list(dict.fromkeys(key.partition("/")[0] for key in keys))
    if len(classes) != 1 and not (holders and all(_FIELDS.match(name.lower()) for name in holders)):
        return
    folder = next((name for name in holders if _PICTURES.match(name.lower())), (holders or list(classes))[0])
    inner = list(
        dict.fromkeys(key.split("/")[1] for key in keys if key.startswith(f"{folder}/") and key.count("/") > 1)
    )
    has_own = any(key.startswith(f"{folder}/") and key.count("/") == 1 for key in keys)
    place = str(Path(path, folder))
    command = f"fastio pack {shlex.quote(place)} {shlex.quote(f'{Path(path).resolve().name}.lmdb')}"
    if inner and not has_own and all(map(_split_word, inner)):
        ways = " and ".join(f"`{_split_command(place, name)}`" for name in inner[:3])
        ways = f"{_listed(inner[:_SHOWN])} in it seem to be parts of a dataset: {ways}"
    elif inner and not has_own:
        ways = f"{_listed(inner[:_SHOWN])} in it look like the class folders: `{command}`"
    else:
        beside = (each.key for each in problems if "/" not in each.key and each.key.lower().endswith(LABEL_SUFFIXES))
        file = next(beside, None)
        labels = "" if file is None else f" --labels {shlex.quote(str(Path(path, file)))}"
        ways = f"`{command}{labels}` packs its pictures {'with' if labels else 'without'} labels"
    kept = f"{folder!r} as the only class" if len(classes) == 1 else f"{_listed(classes[:_SHOWN])} as classes"
    raise SourceError(
        f"{path}: {f'{folder}/'!r} {'is its only folder' if len(classes) == 1 else 'is hardly a class, by its name'}: "
        f"{ways}; --source-kind imagefolder packs {kept}"
    )


def refuse_fields(path: str, classes: Sequence[str], keys: Sequence[str], problems: Collection[Problem]) -> None:
    """
    Raise SourceError if two folders hold files of the same names, such as images and their masks.

    Half of the smaller folder's names must be in the other one as well. Names that are only numbers do not count,
    unless the folders are named like fields. ``keys`` are those of the files, ``problems`` what else was found.
    """
    if not 2 <= len(classes) <= _MOST_FOLDERS:
        return
    for one, other, stems in _pairs(classes, _stems(keys)):
        are_fields = all(_FIELDS.match(name.lower()) for name in (one, other))
        both = sorted(stems[0] & stems[1])
        if not are_fields and _is_numbered(both):
            continue
        skip = " --on-error skip" if problems else ""
        raise SourceError(
            f"{path}: {one!r} and {other!r} hold files of the same names ({len(both):,} of {len(stems[0]):,} and "
            f"{len(stems[1]):,}, e.g. {both[0]!r}): parts of one sample, not classes? Pack them together, "
            f"`{_pairs_command(path, one, other)}`, or say `--source-kind imagefolder{skip}` if they are classes"
        )


def _split_command(path: str, name: str) -> str:
    """The command that packs one part of a dataset."""
    return f"fastio pack {shlex.quote(path)} {shlex.quote(f'{name}.lmdb')} --split {shlex.quote(name)}"


def _pairs_command(path: str, one: str, other: str) -> str:
    """The command that packs two folders as fields, with the pictures first."""
    pictures, further = (
        (other, one) if _PICTURES.match(other.lower()) and not _PICTURES.match(one.lower()) else (one, other)
    )
    field = _field_name(further)
    return (
        f"fastio pack {shlex.quote(str(Path(path, pictures)))} {shlex.quote(f'{Path(path).resolve().name}.lmdb')} "
        f"--field {shlex.quote(f'{field}={Path(path, further)}/')}"
    )


def _field_name(folder: str) -> str:
    """A name for the field of a folder: "masks" hold a mask each."""
    name = re.sub(r"[^a-z0-9_]", "_", folder.lower())
    name = name if name[:1].isalpha() else f"field_{name}"
    name = name.removesuffix("s") if len(name) > 2 else name
    return "mask" if name == "label" else name


def _split_word(name: str) -> str:
    """The word in a name that stands for a part of a data set, "" without one."""
    return next((word for word in _WORD.findall(name.lower()) if word in _SPLITS), "")


def _stems(keys: Sequence[str]) -> Mapping[str, set[str]]:
    """The names below each class folder, without their extensions."""
    stems: dict[str, set[str]] = {}
    for key in keys:
        folder, _, rest = key.partition("/")
        stems.setdefault(folder, set()).add(rest.rpartition(".")[0])
    return stems


def _pairs(
    classes: Sequence[str], stems: Mapping[str, set[str]]
) -> Iterator[tuple[str, str, tuple[set[str], set[str]]]]:
    """Folders of which half of the smaller one's names are in the other."""
    for one, other in combinations([name for name in classes if stems.get(name)], 2):
        pair = stems[one], stems[other]
        if 2 * len(pair[0] & pair[1]) >= min(map(len, pair)):
            yield one, other, pair


def _is_numbered(stems: Sequence[str]) -> bool:
    """Whether names are one word and a running number, as in ``image_0001``: they are such in any folder."""
    numbers: list[int] = []
    words = set()
    for stem in stems:
        match = _NUMBERED.match(stem.rpartition("/")[2])
        if match is None:
            return False
        words.add(match[1])
        numbers.append(int(match[2]))
    return len(words) == 1 and max(numbers) <= 2 * len(numbers)


def _listed(names: Sequence[str]) -> str:
    quoted = [repr(f"{name}/") for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
