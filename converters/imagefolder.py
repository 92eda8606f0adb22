"""Class folders, by the rules of torchvision's ImageFolder: the first folder level is the class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastio.converters.files import FileSource
from fastio.converters.junk import is_hidden
from fastio.converters.labels import LABEL_SUFFIXES, LabelFile
from fastio.converters.scan import Folder, image_kind, scan_root, scan_tree, shown
from fastio.converters.source import Problem
from fastio.errors import SourceError

__all__ = ["open_imagefolder"]


def open_imagefolder(path: str, labels: LabelFile | None = None, top: Folder | None = None) -> FileSource:
    """
    ``path/class/.../file``: classes sorted by name, files in the order of their folders and names, links followed.

    A class folder without any image is a problem, but stays a class, as with torchvision's ``allow_empty``. Files
    beside the class folders have no class: problems. Hidden folders are no classes. ``top`` is the scan of ``path``,
    where there is one already.
    """
    if labels is not None:
        raise SourceError(
            f"{path}: class folders name the classes; --labels {labels.path} would contradict them, leave it out"
        )
    top = top or scan_root(path)
    classes = [name for name in top.folders if not is_hidden(name)]
    if not classes:
        raise SourceError(f"{path}: has no class folders; is it --layout flat?")
    found = Folder(disk_bytes=top.disk_bytes)
    _add_files_beside(found, top)
    for name in top.folders:
        if is_hidden(name):
            found.add(scan_tree(path, name))
    counts = []
    for name in classes:
        part = scan_tree(path, name)
        if not part.keys and not any(image_kind(each.key) or each.key == shown(name) for each in part.problems):
            part.problems.append(Problem(shown(name), "is a class folder without an image; remove it or fill it"))
        found.add(part)
        counts.append(len(part.keys))
    source = {"layout": "imagefolder", "name": Path(path).resolve().name, "labels": None}
    values = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return FileSource.of(path, found, values, {"classes": list(map(shown, classes)), "source": source})


def _add_files_beside(found: Folder, top: Folder) -> None:
    """
    The files beside the class folders: images have no class, and a label file says that more is meant.

    It is rather that of a flat folder of images, one level further up than meant.
    """
    sentence = "lies beside the class folders; if it labels a flat folder, pack that folder with --labels"
    for each in top.problems:
        is_label_file = each.key.lower().endswith(LABEL_SUFFIXES)
        found.problems.append(Problem(each.key, sentence) if is_label_file else each)
    for each in top.left_out:
        if each.key.lower().endswith(LABEL_SUFFIXES) and not each.key.startswith("."):
            found.problems.append(Problem(each.key, sentence))
        else:
            found.left_out.append(each)
    found.problems += [
        Problem(key, "lies beside the class folders and so has no class; move it into one") for key in top.keys
    ]
