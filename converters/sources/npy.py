"""Arrays of NumPy: an .npy file, an .npz archive, or a folder of .npy files with as many rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.npy import read_npy_header

__all__ = ["KIND"]

_MOST_FILES = 64  # of a folder that is taken for arrays of one dataset


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.containers.npy_source import open_npy

    return open_npy(place, options)


def _signs(place: SourcePath) -> str:
    """The suffix of a file; of a folder, nothing but a few .npy files."""
    if not place.is_folder:
        return (
            "an array of NumPy" if place.path.lower().endswith((".npy", ".npz")) and Path(place.path).is_file() else ""
        )
    top = place.top
    names = [each.key for each in top.problems]
    is_all = bool(names) and not top.keys and not top.folders and all(name.endswith(".npy") for name in names)
    if not is_all or len(names) > _MOST_FILES:
        return ""
    return f"{len(names)} .npy files" if len(_lengths(place.path, names)) == 1 else ""


def _lengths(folder: str, names: Sequence[str]) -> set[int]:
    """The numbers of rows of these files; -1 for one that has none."""
    lengths = set()
    for name in names:
        try:
            with Path(folder, name).open("rb") as file:
                shape, _, _ = read_npy_header(file)
            lengths.add(shape[0] if shape else -1)
        except (OSError, ValueError):
            lengths.add(-1)
    return lengths


KIND = SourceKind(
    name="npy",
    what="arrays of NumPy",
    signs=_signs,
    open=_open,
    own_labels="arrays of labels are fields, as in --field label=y",
    takes_fields=True,
    takes_without=True,
    takes_root=True,
)
