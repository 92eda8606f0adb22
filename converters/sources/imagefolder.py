"""Class folders, as torchvision's ImageFolder reads them: the first folder level is the class."""

from __future__ import annotations

import logging

import numpy as np

from fastio.converters.ambiguous import refuse_fields, refuse_one_class, refuse_splits
from fastio.converters.files import file_source
from fastio.converters.junk import is_hidden
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath, source_record
from fastio.converters.labels import LABEL_SUFFIXES
from fastio.converters.listed import ListedSource
from fastio.converters.scan import Folder, scan_tree, shown
from fastio.converters.source import Problem
from fastio.errors import SourceError
from fastio.types.picture_kinds import count_beyond_imagefolder, kind_by_name
from fastio.types.units import counted

__all__ = ["KIND", "open_imagefolder"]

_LOG = logging.getLogger(__name__)


def open_imagefolder(place: SourcePath, _options: SourceOptions) -> ListedSource:
    """
    Open ``path/class/.../file``: classes sorted by name, files by folder and name, links followed.

    A class folder without any image is a problem, but stays a class, as with torchvision's ``allow_empty``. Files
    beside the class folders have no class, so they are problems. Hidden folders are not classes. Pictures that
    ImageFolder leaves out, such as GIFs, are samples here; a warning counts them.
    """
    path, top = place.path, place.top
    classes = _visible(top)
    if not classes:
        raise SourceError(f"{path}: has no class folders; is it --source-kind flat?")
    found = Folder(disk_bytes=top.disk_bytes)
    _add_files_beside(found, top)
    for name in top.folders:
        if is_hidden(name):
            found.add(scan_tree(path, name))
    counts = []
    for name in classes:
        part = scan_tree(path, name)
        if not part.keys and not any(kind_by_name(each.key) or each.key == shown(name) for each in part.problems):
            part.problems.append(Problem(shown(name), "is a class folder without an image: remove it or fill it"))
        found.add(part)
        counts.append(len(part.keys))
    _warn_of_others(path, found)
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
        is_label_file = each.key.lower().endswith(LABEL_SUFFIXES)
        found.problems.append(Problem(each.key, sentence) if is_label_file else each)
    for each in top.left_out:
        if each.key.lower().endswith(LABEL_SUFFIXES) and not each.key.startswith("."):
            found.problems.append(Problem(each.key, sentence))
        else:
            found.left_out.append(each)
    found.problems += [
        Problem(key, "is beside the class folders, so it has no class: move it into one") for key in top.keys
    ]


def _open_detected(place: SourcePath, options: SourceOptions) -> ListedSource:
    """The same where the user did not say that folders are classes: SourceError if they are hardly that."""
    refuse_splits(place.path, place.top.folders)
    source = open_imagefolder(place, options)
    refuse_fields(place.path, source.metadata["classes"], source.keys, source.problems)
    refuse_one_class(place.path, source.metadata["classes"], source.keys, source.problems)
    return source


def _visible(top: Folder) -> list[str]:
    return [name for name in top.folders if not is_hidden(name)]


def _signs(place: SourcePath) -> str:
    """How many folders lie in the folder."""
    count = len(_visible(place.top)) if place.is_folder else 0
    return f"{count:,} {'folder' if count == 1 else 'folders'}" if count else ""


KIND = SourceKind(
    name="imagefolder",
    what="class folders of images",
    signs=_signs,
    open=open_imagefolder,
    open_detected=_open_detected,
    own_labels="class folders name the classes",
)
