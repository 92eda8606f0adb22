"""One folder of image files and a label file beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fastio.converters.files import file_source
from fastio.converters.junk import is_hidden
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath, source_record
from fastio.converters.labels import LABEL_SUFFIXES, Labels, read_labels
from fastio.converters.listed import ListedSource
from fastio.converters.scan import Folder, scan_tree, shown
from fastio.converters.source import Problem
from fastio.errors import SourceError
from fastio.types.picture_kinds import kind_by_name
from fastio.types.units import counted

__all__ = ["KIND", "open_flat"]


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
    if labels is None:
        _point_at_labels(found)
        return file_source(path, found, None, {"classes": None, "source": source})
    if Path(labels.path).resolve().parent == Path(path).resolve():
        _leave_out(found, Path(labels.path).name)
    read = read_labels(labels.path, labels.options, files=frozenset(found.keys))
    values = _assign(found, read, path)
    source |= {"labels": Path(labels.path).name, "label_options": labels.options.to_json()}
    if read.numbered.width is not None and len(read.titles) == read.numbered.width:
        source["label_titles"] = list(read.titles)
    classes = None if read.classes is None else list(read.classes)
    return file_source(path, found, values, {"classes": classes, "source": source})


def _leave_out(found: Folder, name: str) -> None:
    """The label file itself is no sample, though it lies among them."""
    found.problems = [problem for problem in found.problems if problem.key != name]
    found.left_out = [each for each in found.left_out if each.key != name]


def _point_at_labels(found: Folder) -> None:
    """What looks like a label file is a problem where no labels are given, which says what it is good for."""
    names = [each.key for each in (*found.problems, *found.left_out) if each.key.lower().endswith(LABEL_SUFFIXES)]
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


def _signs(place: SourcePath) -> str:
    """How many pictures lie in the folder itself."""
    if not place.is_folder:
        return ""
    top = place.top
    count = len(top.keys) + sum(kind_by_name(problem.key) != 0 for problem in top.problems)
    return f"{count:,} {'image' if count == 1 else 'images'}" if count else ""


KIND = SourceKind(name="flat", what="a folder of images", signs=_signs, open=open_flat)
