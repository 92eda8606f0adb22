"""One folder of image files and a label file beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastio.converters.base import Problem
from fastio.converters.files import FileSource
from fastio.converters.labels import LABEL_SUFFIXES, Labels, read_labels
from fastio.converters.scan import Folder, scan_root, shown

__all__ = ["open_flat"]


def open_flat(path: str, labels: str | None = None, top: Folder | None = None) -> FileSource:
    """
    All images of one folder, sorted by name; their labels, where ``labels`` names a label file.

    Names in the label file may carry folders, where these are the end of ``path`` ("train/a.png" for "data/train");
    with others they are labels of other files. A label without a file and a file without a label are problems.
    Without a label file the source has no labels. ``top`` is the scan of ``path``, where there is one already.
    """
    found = top or scan_root(path)
    for key in found.folders:
        found.problems.append(Problem(shown(key), "is a folder, which a flat source has none of; pack it by itself"))
    said = None if labels is None else read_labels(labels)
    if labels is not None and Path(labels).resolve().parent == Path(path).resolve():
        _leave_out(found, Path(labels).name)
    values = None
    if said is not None:
        values = _assign(found, said, path)
    else:
        _hint_at_labels(found)
    classes = None if said is None or said.classes is None else list(said.classes)
    source = {"layout": "flat", "name": Path(path).resolve().name, "labels": labels and Path(labels).name}
    return FileSource.of(path, found, values, {"classes": classes, "source": source})


def _leave_out(found: Folder, name: str) -> None:
    """The label file itself is no sample, though it lies among them."""
    found.problems = [problem for problem in found.problems if problem.key != name]


def _hint_at_labels(found: Folder) -> None:
    """Say what a file that looks like a label file is good for."""
    for i, problem in enumerate(found.problems):
        if problem.key.lower().endswith(LABEL_SUFFIXES):
            found.problems[i] = Problem(problem.key, "is no image; if it holds the labels, say --labels with its path")


def _assign(found: Folder, labels: Labels, path: str) -> NDArray[np.int64]:
    """Labels in the order of the files; whatever has only one of the two moves to the problems."""
    file = Path(labels.path).name
    by_name, contradictions, elsewhere = _by_basename(labels, path)
    values = list(map(by_name.get, found.keys))
    if len(values) == len(by_name) and not contradictions and not elsewhere and None not in values:
        return np.array(values, np.int64)  # the usual folder: every file has a label, every label a file
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
            f"has a label in {file}, but the folder in its name is not {Path(path).resolve().name!r}, which is "
            f"packed; is it of another part of the dataset?",
        )
        for name in elsewhere
    ]
    return np.array([value for value in values if value is not None], np.int64)


def _by_basename(labels: Labels, path: str) -> tuple[Mapping[str, int], Mapping[str, str], list[str]]:
    """
    What is said of the files in ``path``, by names without folders: labels, contradictions; and names of other folders.

    Names that become equal must agree.
    """
    if "/" not in "".join(labels.by_name) and "/" not in "".join(labels.contradictions):
        return labels.by_name, labels.contradictions, []
    roots = {str(Path(path).absolute()), str(Path(path).resolve())}
    folders = {name.rpartition("/")[0] for name in (*labels.by_name, *labels.contradictions)}
    here = {folder for folder in folders if not folder or _names_one_of(folder, roots)}
    by_name: dict[str, int] = {}
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
            contradictions[base] = f"has two labels that contradict each other, as {origin[base]!r} and as {name!r}"
        origin.setdefault(base, name)
    by_name = {base: value for base, value in by_name.items() if base not in contradictions}
    return by_name, contradictions, elsewhere


def _names_one_of(folder: str, roots: set[str]) -> bool:
    """Whether the folder of a name is one of these folders, or the end of its path: "train" for "/data/train"."""
    place = os.path.normpath(folder)
    if place.startswith("/"):
        return place in roots
    return place == "." or any(root.endswith(f"/{place}") for root in roots)
