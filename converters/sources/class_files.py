"""Class folders of files that are no pictures: arrays of NumPy, sound, video, or any bytes, as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastio.converters.sources.files import LABEL_FIELD, paths_below
from fastio.converters.sources.folders import refuse_splits
from fastio.converters.sources.listed import ListedSource, names_at
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.pairs import FieldFiles, suggested_field
from fastio.errors import SourceError
from fastio.store.kinds.layouts import CLASS_FILES
from fastio.store.kinds.scan import Folder, Problem, SourcePath, Wanted, is_hidden, junk_reason, scan_tree, shown
from fastio.types.field_types import field_of
from fastio.types.schema import Schema

__all__ = [
    "open_class_files",
]


_KIND = "class-files"  # of sources


def open_class_files(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open ``path/class/.../file`` of one extension: classes sorted by name, files by folder and name.

    Files of .npy become a field ``array``, of one shape or ragged; sound ``audio``, video ``video``, all others
    ``content``, which are bytes as they are: decoding them is the reader's. Other files are problems.
    """
    del options
    classes = [name for name in place.top.folders if not is_hidden(name)] if place.is_folder else []
    refuse_splits(place.path, classes, _KIND)
    first = Folder()
    for name in classes:
        first.add(scan_tree(place.path, name, Wanted(_known, "a file", ", ".join(CLASS_FILES), junk_reason)))
    suffixes = {Path(key).suffix.lower() for key in first.keys}
    if len(suffixes) != 1:
        found = ", ".join(sorted(suffixes)) or "none"
        raise SourceError(f"{place.path}: expected class folders of files of one extension, found {found}")
    suffix = suffixes.pop()
    name = CLASS_FILES[suffix]
    field = suggested_field(name, place.path, first.keys) if suffix == ".npy" else field_of(name, "bytes")
    counts = dict.fromkeys(classes, 0)
    for key in first.keys:
        counts[key.partition("/")[0]] += 1
    first.left_out += [
        Problem(f"{shown(each)}/", f"is a class folder without a {suffix}, and stays a class")
        for each, count in counts.items()
        if not count
    ]
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), list(counts.values()))
    files = FieldFiles(field, place.path, names_at(first.keys), np.array(first.sizes, np.int64))
    beside = [
        Problem(each.key, "is beside the class folders, so it has no class")
        for each in place.top.problems
        if not junk_reason(each.key)
    ]
    beside += [Problem(shown(key), "is a picture beside class folders of other files") for key in place.top.keys]
    return ListedSource(
        path=place.path,
        kind=_KIND,
        schema=Schema((field, LABEL_FIELD)),
        metadata={"classes": list(map(shown, classes)), "source": source_record(_KIND, place.name, labels=None)},
        keys_at=names_at(first.keys),
        sizes=files.sizes,
        read=files.begin,
        disk_bytes=first.disk_bytes,
        files_opened=len(first.keys),
        columns={"label": labels},
        problems=[*first.problems, *beside],
        left_out=[*first.left_out, *place.top.left_out],
        paths=lambda: paths_below(place.path, first.keys),
        listed=first.listed,
    )


def _known(name: str) -> int:
    return int(Path(name).suffix.lower() in CLASS_FILES and not name.startswith("."))
