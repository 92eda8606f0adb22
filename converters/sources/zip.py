"""Zip archives of others: a folder of pictures, class folders, or folders of pictures and their masks or texts."""

from __future__ import annotations

from fastio.converters.containers.of_others import is_of_others
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource

__all__ = ["KIND"]


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.containers.zip_source import open_zip

    return open_zip(place, options)


def _open_detected(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.containers.zip_source import open_zip

    return open_zip(place, options, is_named=False)


def _signs(place: SourcePath) -> str:
    """The mark of zip in a file that has no seal of ours; arrays of NumPy are another kind."""
    is_numpy = place.path.lower().endswith(".npz")
    return "a zip archive" if not is_numpy and not place.is_folder and is_of_others(place.path, "zip") else ""


KIND = SourceKind(
    name="zip",
    what="a zip archive of another program",
    signs=_signs,
    open=_open,
    open_detected=_open_detected,
    own_labels="pictures in an archive have the labels of their folders; to use a label file, unzip it",
    takes_fields=True,
    takes_root=True,
    covers=("store",),
)
