"""One folder of pictures with a label file, and class folders; folders that are neither are refused."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.labels.file import Labels, is_label_name, read_labels
from fastio.converters.sources.files import file_source
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.errors import SourceError
from fastio.store.kinds.layouts import damaged_layout
from fastio.store.kinds.names import SPLITS
from fastio.store.kinds.scan import NOTE, Folder, Problem, SourcePath, is_hidden, scan_tree, shown
from fastio.types.picture_kinds import count_beyond_imagefolder, kind_by_name
from fastio.types.units import counted

__all__ = [
    "open_detected",
    "open_flat",
    "open_imagefolder",
    "refuse_fields",
    "refuse_splits",
]

_LOG = logging.getLogger(__name__)


def open_flat(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open all images of one folder, sorted by name, with their labels if ``options`` name a label file.

    Names in the label file may have folders if these are the end of ``path`` ("train/a.png" for "data/train");
    otherwise, they are labels of other files. A label without a file and a file without a label are problems. Files
    whose rows do not pass the label file's filters are left out. Without a label file, the source has no labels.
    """
    path, labels, found = place.path, options.labels, Folder()
    found.add(place.top)
    for key in place.top.folders:
        if is_hidden(key):
            found.add(scan_tree(path, key))
        else:
            found.problems.append(
                Problem(shown(key), "is a folder, but a flat source has no folders: pack it by itself")
            )
    source = source_record("flat", place.name, labels=None)
    _warn_of_texts(path, found)
    if labels is None:
        _point_at_labels(found)
        return file_source(path, found, None, {"classes": None, "source": source})
    if Path(labels.path).resolve().parent == Path(path).resolve():
        _leave_out(found, Path(labels.path).name)
    stems = _unique_stems(found.keys)
    read = read_labels(labels.path, labels.options, files=frozenset([*found.keys, *stems]))
    read = _named_by_files(read, stems)
    values = _assign(found, read, path)
    source |= {"labels": Path(labels.path).name, "label_options": labels.options.to_json()}
    if read.numbered.width is not None and len(read.titles) == read.numbered.width:
        source["label_titles"] = list(read.titles)
    classes = None if read.classes is None else list(read.classes)
    return file_source(path, found, values, {"classes": classes, "source": source})


def _unique_stems(names: Sequence[str]) -> dict[str, str]:
    """Files by their names without extensions, as far as one file alone is called so."""
    stems: dict[str, str] = {}
    twice = set[str]()
    for name in names:
        stem = name.rpartition(".")[0]
        if stems.setdefault(stem, name) != name:
            twice.add(stem)
    return {stem: name for stem, name in stems.items() if stem not in twice}


def _named_by_files(labels: Labels, stems: Mapping[str, str]) -> Labels:
    """Labels whose names have no extensions under the names of the files; others as they are."""
    names = [*labels.by_name, *labels.contradictions]
    if any(map(kind_by_name, names)) or not any(name in stems for name in names):
        return labels
    return replace(
        labels,
        numbered=replace(
            labels.numbered, by_name={stems.get(name, name): each for name, each in labels.by_name.items()}
        ),
        contradictions={stems.get(name, name): each for name, each in labels.contradictions.items()},
        filtered=frozenset(stems.get(name, name) for name in labels.filtered),
    )


def _leave_out(found: Folder, name: str) -> None:
    """The label file itself is no sample, though it lies among them."""
    found.problems = [problem for problem in found.problems if problem.key != name]
    found.left_out = [each for each in found.left_out if each.key != name]


def _point_at_labels(found: Folder) -> None:
    """What looks like a label file is a problem where no labels are given, which says what it is good for."""
    names = [each.key for each in (*found.problems, *found.left_out) if is_label_name(each.key)]
    for name in names:
        if "/" not in name and not name.startswith("."):
            _leave_out(found, name)
            found.problems.append(Problem(name, "is not an image; if it holds the labels, pass it with --labels"))


def _assign(found: Folder, labels: Labels, path: str) -> NDArray[Any]:
    """Labels in the order of the files; whatever has only one of the two moves to the problems."""
    file = Path(labels.path).name
    by_name, contradictions, elsewhere = _by_basename(labels, path)
    _leave_out_filtered(found, labels, path, by_name.keys() | contradictions.keys())
    values = list(map(by_name.get, found.keys))
    if found.keys and all(value is None for value in values) and contradictions.keys().isdisjoint(found.keys):
        raise _unmatched(found, labels, path)
    if len(values) == len(by_name) and not contradictions and not elsewhere and None not in values:
        return labels.numbered.array(values)  # the usual folder: every file has a label, every label a file
    names = set(found.keys)
    known = names.union(problem.key for problem in found.problems)
    for name, sentence in contradictions.items():
        if name in names:
            found.problems.append(Problem(shown(name), f"{sentence}, in {file}"))
        elif name not in known:
            found.problems.append(Problem(shown(name), f"{sentence}, in {file}, and there is no such file"))
    if None in values:
        found.problems += [
            Problem(shown(key), f"has no label in {file}")
            for key, value in zip(found.keys, values, strict=True)
            if value is None and key not in contradictions
        ]
        found.keep([value is not None for value in values])
    found.problems += [
        Problem(shown(name), f"has a label in {file}, but there is no such file")
        for name in by_name.keys() - names
        if shown(name) not in known
    ]
    found.problems += [
        Problem(
            shown(name),
            f"has a label in {file}, but the folder in its name is not {Path(path).resolve().name!r}, the one "
            "being packed; does it belong to another part of the dataset?",
        )
        for name in elsewhere
    ]
    return labels.numbered.array([value for value in values if value is not None])


def _unmatched(found: Folder, labels: Labels, path: str) -> SourceError:
    """The error for a label file that names none of the pictures."""
    names = [*labels.by_name, *labels.contradictions]
    stems = {Path(key).stem for key in found.keys}
    if "/" in names[0]:
        hint = f"a folder in a name must be {Path(path).resolve().name!r}, the one being packed"
    elif not stems.isdisjoint(names):
        hint = f"add the extensions to its names, as in {names[0] + Path(found.keys[0]).suffix!r}"
    else:
        hint = "its names must be those of the files, with their extensions"
    pictures, file = counted(len(found.keys), "picture"), Path(labels.path).name
    return SourceError(
        f"{shown(path)}: none of its {pictures} has a label in {file}: that file names {shown(names[0])!r} "
        f"({counted(len(names), 'name')} in all), the first picture is {shown(found.keys[0])!r}; {hint}"
    )


def _leave_out_filtered(found: Folder, labels: Labels, path: str, labelled: Collection[str]) -> None:
    """Files whose rows in the label file do not pass its filters; one that has another row which does stays."""
    if not labels.filtered:
        return
    roots = _roots(path)
    here = {folder: _names_one_of(folder, roots) for folder in {name.rpartition("/")[0] for name in labels.filtered}}
    names = {name.rpartition("/")[2] for name in labels.filtered if here[name.rpartition("/")[0]]} - set(labelled)
    sentence = f"does not pass the filters of {Path(labels.path).name}"
    found.left_out += [Problem(key, sentence) for key in found.keys if key in names]
    found.problems = [each for each in found.problems if each.key not in names]
    found.keep([key not in names for key in found.keys])


def _by_basename(labels: Labels, path: str) -> tuple[Mapping[str, Any], Mapping[str, str], list[str]]:
    """
    What is said of the files in ``path``, by names without folders: labels, contradictions; and names of other folders.

    Names that become equal must agree.
    """
    if "/" not in "".join(labels.by_name) and "/" not in "".join(labels.contradictions):
        return labels.by_name, labels.contradictions, []
    roots = _roots(path)
    folders = {name.rpartition("/")[0] for name in (*labels.by_name, *labels.contradictions)}
    here = {folder for folder in folders if _names_one_of(folder, roots)}
    by_name: dict[str, Any] = {}
    origin: dict[str, str] = {}
    contradictions: dict[str, str] = {}
    elsewhere: list[str] = []
    for name, sentence in labels.contradictions.items():
        folder, _, base = name.rpartition("/")
        if folder in here:
            contradictions[base] = sentence
        else:
            elsewhere.append(name)
    for name, value in labels.by_name.items():
        folder, _, base = name.rpartition("/")
        if folder not in here:
            elsewhere.append(name)
            continue
        if by_name.setdefault(base, value) != value:
            contradictions[base] = f"has two contradicting labels, as {origin[base]!r} and as {name!r}"
        origin.setdefault(base, name)
    by_name = {base: value for base, value in by_name.items() if base not in contradictions}
    return by_name, contradictions, elsewhere


def _roots(path: str) -> set[str]:
    """What the folder is called, with and without its links."""
    return {str(Path(path).absolute()), str(Path(path).resolve())}


def _names_one_of(folder: str, roots: set[str]) -> bool:
    """Whether the folder of a name is none, one of these, or the end of one's path: "train" for "/data/train"."""
    if not folder:
        return True
    place = os.path.normpath(folder)
    if place.startswith("/"):
        return place in roots
    return place == "." or any(root.endswith(f"/{place}") for root in roots)


def _warn_of_texts(path: str, found: Folder) -> None:
    """Log how many texts of the names of pictures, most likely their captions, are left out, and what takes them."""
    stems = {key.rpartition(".")[0] for key in map(shown, found.keys)}
    texts = [each.key for each in found.left_out if each.key.rpartition(".")[0] in stems and each.key.endswith(".txt")]
    if texts:
        _LOG.warning(
            "%s: left out: %s of the names of pictures, such as %s: --field caption={stem}.txt takes them along "
            "(in Python fields=['caption={stem}.txt'] of Unpacked)",
            shown(path),
            counted(len(texts), "text"),
            texts[0],
        )


# Class folders, as torchvision's ImageFolder reads them: the first folder level is the class.


def open_imagefolder(place: SourcePath, _options: SourceOptions) -> ListedSource:
    """
    Open ``path/class/.../file``: classes sorted by name, files by folder and name, links followed.

    A class folder without any image stays a class, as with torchvision's ``allow_empty``; a warning names it. Files
    beside the class folders have no class, so they are problems. Hidden folders are not classes. Pictures that
    ImageFolder leaves out, such as GIFs, are samples here; a warning counts them.
    """
    path, top = place.path, place.top
    classes = _visible(top)
    if not classes:
        raise SourceError(f"{path}: has no class folders; is it --source-kind flat?")
    found = Folder(listed=dict(top.listed), disk_bytes=top.disk_bytes)
    _add_files_beside(found, top)
    for name in top.folders:
        if is_hidden(name):
            found.add(scan_tree(path, name))
    counts, empty = list[int](), list[str]()
    for name in classes:
        part = scan_tree(path, name)
        if not part.keys and not part.problems:
            empty.append(shown(name))
            part.left_out.append(Problem(f"{shown(name)}/", "is a class folder without an image, and stays a class"))
        found.add(part)
        counts.append(len(part.keys))
    _warn_of_others(path, found)
    _warn_of_texts(path, found)
    if empty:
        named = ", ".join(map(repr, empty[:_SHOWN]))
        _LOG.warning("%s: %s without an image: %s", shown(path), counted(len(empty), "class folder"), named)
    source = source_record("imagefolder", place.name, labels=None)
    values = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return file_source(path, found, values, {"classes": list(map(shown, classes)), "source": source})


def _warn_of_others(path: str, found: Folder) -> None:
    """Log how many samples ImageFolder would not have: those after them have other indices there."""
    counts = count_beyond_imagefolder(found.keys)
    if counts:
        _LOG.warning(
            "%s: %s (%s) that torchvision's ImageFolder leaves out: classes and samples may have other indices there",
            shown(path),
            counted(sum(counts.values()), "picture"),
            ", ".join(sorted(counts)),
        )


def _add_files_beside(found: Folder, top: Folder) -> None:
    """
    The files beside the class folders: images have no class, and a label file says that more is meant.

    It is rather that of a flat folder of images, one level further up than meant.
    """
    sentence = "is beside the class folders; if it labels a flat folder, pack that folder with --labels"
    for each in top.problems:
        is_label_file = is_label_name(each.key)
        found.problems.append(Problem(each.key, sentence) if is_label_file else each)
    for each in top.left_out:
        if is_label_name(each.key) and not each.key.startswith("."):
            found.problems.append(Problem(each.key, sentence))
        else:
            found.left_out.append(each)
    found.problems += [
        Problem(key, "is beside the class folders, so it has no class: move it into one") for key in top.keys
    ]


def open_detected(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open class folders where the user did not say that folders are classes: SourceError if they are hardly that."""
    refuse_splits(place.path, place.top.folders)
    near, pictures = damaged_layout(place)
    if near:
        command = f"fastio pack {shlex.quote(str(Path(place.path, pictures)))} {shlex.quote(f'{place.name}.lmdb')}"
        raise SourceError(f"{place.path}: {near}; `{command}` packs its pictures without labels")
    source = open_imagefolder(place, options)
    refuse_fields(place.path, source.metadata["classes"], source.keys, source.problems)
    refuse_one_class(place.path, source.metadata["classes"], source.keys, source.problems)
    refuse_typical(place, source.keys)
    return source


def _visible(top: Folder) -> list[str]:
    return [name for name in top.folders if not is_hidden(name)]


# Refuses folders that look like classes but hardly are: parts of a dataset, or fields of a sample.

_WORD = re.compile(r"[a-z]+")
_PICTURES = re.compile(r"(?:.*_)?(?:images?|imgs?|pictures?|photos?|rgb|inputs?)\Z")
_FIELDS = re.compile(
    r"(?:.*_)?(?:images?|jpegimages|imgs?|pictures?|photos?|rgb|masks?|labels?|annotations?|annots?|gts?|"
    r"seg(?:mentations?|mentationclass|mentationobject)?|leftimg8bit|gtfine|gtcoarse|imagesets|"
    r"ground_?truths?|depths?|normals?|edges?|inputs?|targets?|lr|hr)\Z"
)
_ANNOTATING = (".json", ".jsonl", ".xml", ".yaml", ".yml", ".csv", ".tsv", ".parquet", ".pkl", ".txt", ".mat", ".names")
_SHOWN = 10  # folders listed in a message
_MOST_FOLDERS = 32  # with more of them nobody keeps fields of one sample
_NUMBERED = re.compile(r"(.*?)([0-9]+)\Z", re.DOTALL)


def refuse_splits(path: str, folders: Sequence[str], kind: str = "imagefolder") -> None:
    """
    Raise SourceError if class folders are named like parts of a dataset: two of them, or all.

    ``kind`` is the kind of source that treats them as classes.
    """
    visible = [name for name in folders if not is_hidden(name)]
    splits = [name for name in visible if name.lower() in SPLITS]
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
        beside = (each.key for each in problems if "/" not in each.key and is_label_name(each.key))
        file = next(beside, None)
        labels = "" if file is None else f" --labels {shlex.quote(str(Path(path, file)))}"
        ways = f"`{command}{labels}` packs its pictures {'with' if labels else 'without'} labels"
    kept = f"{folder!r} as the only class" if len(classes) == 1 else f"{_listed(classes[:_SHOWN])} as classes"
    raise SourceError(
        f"{path}: {f'{folder}/'!r} {'is its only folder' if len(classes) == 1 else 'is hardly a class, by its name'}: "
        f"{ways}; --source-kind imagefolder packs {kept}"
    )


def refuse_typical(place: SourcePath, keys: Sequence[str]) -> None:
    """
    Raise SourceError if a folder of pictures is named like a part of a dataset or like a field, beside what datasets
    have beside such folders: files that may annotate them, or a folder without pictures. ``keys`` are the pictures'.
    """
    holders = dict.fromkeys(key.partition("/")[0] for key in keys if "/" in key)
    typical = [name for name in holders if _FIELDS.match(name.lower()) or _split_word(name)]
    beside = [f"{shown(name)}/" for name in _visible(place.top) if name not in holders and any(_files_in(place, name))]
    files = [each.key for each in (*place.top.problems, *place.top.left_out) if each.problem != NOTE]
    beside += [name for name in files if "/" not in name and Path(name).suffix.lower() in _ANNOTATING]
    if not typical or not beside:
        return
    command = (
        _split_command(place.path, typical[0])
        if _split_word(typical[0])
        else f"fastio pack {shlex.quote(str(Path(place.path, typical[0])))} {shlex.quote(f'{typical[0]}.lmdb')}"
    )
    named = f"{_listed(typical[:_SHOWN])} {'is' if len(typical) == 1 else 'are'}"
    raise SourceError(
        f"{place.path}: {named} hardly a class, by the name and beside {', '.join(map(repr, beside[:3]))}: a dataset "
        f"of an unknown layout? `{command}` packs the pictures of one folder; --source-kind imagefolder "
        "packs all folders as classes"
    )


def _files_in(place: SourcePath, folder: str) -> Iterator[str]:
    return (name for _, _, names in os.walk(f"{place.path}/{folder}") for name in names)


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
    return next((word for word in _WORD.findall(name.lower()) if word in SPLITS), "")


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
