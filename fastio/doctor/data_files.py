"""Finds the files that a dataset reads from its attributes: where they are, what they are, and their sizes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path, PurePath
from typing import Any, Literal

from PIL import Image

from fastio.converters.labels import LABEL_SUFFIXES
from fastio.converters.text import find_text
from fastio.types.picture_kinds import kind_by_name

__all__ = ["DataFiles", "data_files", "data_path"]

_MOST_PATHS = 1000  # files of a list that are examined, evenly spread
_MOST_NAMES = 500  # files counted in folders
_PICTURES = 16  # pictures whose headers are read


@dataclass(frozen=True, slots=True)
class DataFiles:
    """
    What a dataset reads: ``path``, an existing folder or file, and the ``kind`` of its content.

    ``is_flat`` means that pictures lie directly in that folder, so that no folder names their class. ``labels`` is a
    file of labels that the dataset names, or that lies beside the pictures. ``is_sorted`` means that the dataset
    lists its files in the order of their paths. ``sizes`` are width and height of some pictures.
    """

    path: str
    kind: Literal["pictures", "text"] | None = None
    is_flat: bool = False
    labels: str | None = None
    is_sorted: bool = False
    sizes: tuple[tuple[int, int], ...] = ()


def data_path(dataset: Any) -> str | None:
    """
    Return the folder or file that holds the dataset: one that an attribute names, or the common path of the files it
    lists.

    Returns None if no attribute tells.
    """
    store = getattr(dataset, "store", None)
    values = [getattr(store, "path", None), *_attributes(dataset)]
    named = [str(value) for value in values if _is_path(value) and os.path.exists(value)]  # noqa: PTH110 - see _is_path
    named.sort(key=_is_table)  # this may be the data, or only the labels of what another attribute names
    if named:
        return named[0]
    listed = _listed(dataset)
    if not listed:
        return None
    root = os.path.commonpath([os.path.dirname(path) or "." for path in listed])  # noqa: PTH120 - many, as text
    return None if root in ("/", "") else root


def data_files(dataset: Any) -> DataFiles | None:
    """Return what is known about the dataset's files; None without a path."""
    path = data_path(dataset)
    if path is None:
        return None
    labels = _labels(dataset, path)
    listed = _listed(dataset)
    if find_text(path) is not None:
        return DataFiles(path, "text", labels=labels)
    pictures = [file for file in listed or islice(_files_below(path), _MOST_NAMES) if kind_by_name(file)]
    if not pictures:
        return DataFiles(path, labels=labels)
    return DataFiles(
        path,
        "pictures",
        is_flat=all(Path(file).parent == Path(path) for file in pictures),
        labels=labels,
        is_sorted=bool(listed) and _is_sorted(_paths(_list(dataset))),
        sizes=tuple(_sizes(pictures)),
    )


def _labels(dataset: Any, path: str) -> str | None:
    """Return a file of labels that the dataset names, or else the only one in the folder of its files or above it."""
    named = [str(value) for value in _attributes(dataset) if _is_path(value) and _is_table(str(value))]
    beside = [name for name in (*_names(Path(path)), *_names(Path(path).parent)) if _is_table(name)]
    files = [name for name in named if name != path and os.path.isfile(name)]  # noqa: PTH113 - see _is_path
    if files:
        return files[0]
    return beside[0] if len(beside) == 1 and beside[0] != path else None


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.path for entry in islice(entries, _MOST_NAMES) if entry.is_file()]


def _attributes(dataset: Any) -> list[Any]:
    return list(vars(dataset).values()) if hasattr(dataset, "__dict__") else []


def _is_table(path: str) -> bool:
    return path.lower().endswith(LABEL_SUFFIXES)


def _is_path(value: Any) -> bool:
    """Return whether the value may name a file; a text may be too long a name for pathlib."""
    return isinstance(value, (str, os.PathLike)) and bool(str(value)) and "\0" not in str(value)


def _list(dataset: Any) -> Sequence[Any]:
    """Return the first list of files among the attributes: paths, or pairs as in ImageFolder; empty without one."""
    for value in _attributes(dataset):
        if not isinstance(value, (list, tuple)) or not value:
            continue
        chosen = list(_paths(value[:: max(1, len(value) // _MOST_PATHS)]))
        if all(map(_is_path, chosen)) and os.path.isfile(chosen[0]):  # noqa: PTH113 - see _is_path
            return value
    return ()


def _listed(dataset: Any) -> list[str]:
    """Return some of the files that the dataset lists."""
    value = _list(dataset)
    return [os.fspath(path) for path in _paths(value[:: max(1, len(value) // _MOST_PATHS)])]


def _paths(listed: Sequence[Any]) -> Iterator[Any]:
    return (entry[0] if isinstance(entry, (list, tuple)) and entry else entry for entry in listed)


def _is_sorted(paths: Iterable[Any]) -> bool:
    """
    Return whether all paths come in the order of a store: classes, then folders, then names.

    This may differ from the order of the paths as text ("a-b/1" < "a/1"); a dataset sorted that way is not
    recognised.
    """
    pairs = pairwise(os.fspath(path) for path in paths if _is_path(path))
    return all(
        one < other and os.path.split(one) < os.path.split(other) and PurePath(one).parts < PurePath(other).parts
        for one, other in pairs
    )


def _files_below(folder: str) -> Iterator[str]:
    """Yield the files in the folder and below it, the folder's own first."""
    if not Path(folder).is_dir():
        return
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                below.append(entry.path)
            else:
                yield entry.path
    for subfolder in below:
        yield from _files_below(subfolder)


def _sizes(pictures: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the sizes of some pictures from their headers; pictures that Pillow cannot open are left out."""
    for path in pictures[:: max(1, len(pictures) // _PICTURES)][:_PICTURES]:
        try:
            with Image.open(path) as image:
                yield image.size
        except (OSError, ValueError, SyntaxError):
            continue
