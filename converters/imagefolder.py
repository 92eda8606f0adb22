"""Class folders, by the rules of torchvision's ImageFolder: the first folder level is the class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastio.converters.base import Problem
from fastio.converters.files import FileSource
from fastio.converters.labels import LABEL_SUFFIXES
from fastio.converters.scan import Folder, image_kind, scan_root, scan_tree, shown
from fastio.errors import SourceError

__all__ = ["open_imagefolder"]


def open_imagefolder(path: str, labels: str | None = None, top: Folder | None = None) -> FileSource:
    """
    ``path/class/.../file``: classes sorted by name, files in the order of their folders and names, links followed.

    A class folder without any image is a problem, but stays a class, as with torchvision's ``allow_empty``. Files
    beside the class folders have no class: problems. ``top`` is the scan of ``path``, where there is one already.
    """
    if labels is not None:
        raise SourceError(
            f"{path}: class folders name the classes; --labels {labels} would contradict them, leave it out"
        )
    top = top or scan_root(path)
    if not top.folders:
        raise SourceError(f"{path}: has no class folders; is it --layout flat?")
    found = Folder(problems=[_with_hint(problem) for problem in top.problems], disk_bytes=top.disk_bytes)
    found.problems += [
        Problem(key, "lies beside the class folders and so has no class; move it into one") for key in top.keys
    ]
    counts = []
    for name in top.folders:
        part = scan_tree(path, name)
        if not part.keys and not any(image_kind(each.key) or each.key == shown(name) for each in part.problems):
            part.problems.append(Problem(shown(name), "is a class folder without an image; remove it or fill it"))
        found.add(part)
        counts.append(len(part.keys))
    source = {"layout": "imagefolder", "name": Path(path).resolve().name, "labels": None}
    classes = [shown(name) for name in top.folders]
    values = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return FileSource.of(path, found, values, {"classes": classes, "source": source})


def _with_hint(problem: Problem) -> Problem:
    """A label file beside folders: rather a flat folder of images and its labels, one level further up than meant."""
    if problem.key.lower().endswith(LABEL_SUFFIXES):
        sentence = "lies beside the class folders; if it labels a flat folder, pack that folder with --labels"
        return Problem(problem.key, sentence)
    return problem
