"""Class folders, by the rules of torchvision's ImageFolder: the first folder level is the class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastio.converters.base import Problem
from fastio.converters.files import FileSource
from fastio.converters.scan import Folder, image_kind, require_folder, scan_folder, scan_tree, shown
from fastio.errors import SourceError

__all__ = ["open_imagefolder"]


def open_imagefolder(path: str, labels: str | None = None) -> FileSource:
    """
    ``path/class/.../file``: classes sorted by name, files in the order of their folders and names, links followed.

    A class folder without any image is an error, as it is there. Files
    beside the class folders have no class: problems.
    """
    if labels is not None:
        raise SourceError(
            f"{path}: class folders name the classes; --labels {labels} would contradict them, leave it out"
        )
    require_folder(path)
    top = scan_folder(path)
    if not top.folders:
        raise SourceError(f"{path}: has no class folders; is it --layout flat?")
    problems = top.problems + [
        Problem(key, "lies beside the class folders and so has no class; move it into one") for key, _, _ in top.files
    ]
    found = Folder(problems=problems, disk_bytes=top.disk_bytes)
    labels_of_files: list[int] = []
    for index, name in enumerate(top.folders):
        part = scan_tree(path, name)
        if not part.files and not any(image_kind(problem.key) for problem in part.problems):
            raise SourceError(f"{path}/{shown(name)}: this class folder holds no image; remove it or fill it")
        found.files += part.files
        found.problems += part.problems
        found.disk_bytes += part.disk_bytes
        labels_of_files += [index] * len(part.files)
    return FileSource(
        path=path,
        layout="imagefolder",
        metadata={
            "classes": [shown(name) for name in top.folders],
            "source": {"layout": "imagefolder", "name": Path(path).resolve().name, "labels": None},
        },
        keys=[key for key, _, _ in found.files],
        sizes=np.array([size for _, size, _ in found.files], np.int64),
        kinds=np.array([kind for _, _, kind in found.files], np.int32),
        labels=np.array(labels_of_files, np.int64),
        problems=sorted(found.problems, key=lambda problem: problem.key),
        disk_bytes=found.disk_bytes,
    )
