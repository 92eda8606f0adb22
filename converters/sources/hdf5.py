"""HDF5 files of other programs: datasets with a row for each sample."""

from __future__ import annotations

from fastio.converters.containers.of_others import is_of_others
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource

__all__ = ["KIND"]


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.containers.hdf5_source import open_hdf5

    return open_hdf5(place, options)


def _signs(place: SourcePath) -> str:
    """The mark of HDF5 in a file that has no seal of ours."""
    return "an HDF5 file" if not place.is_folder and is_of_others(place.path, "hdf5") else ""


KIND = SourceKind(
    name="hdf5",
    what="an HDF5 file of another program",
    signs=_signs,
    open=_open,
    own_labels="datasets of labels are fields, as in --field label=y",
    takes_fields=True,
    takes_without=True,
    covers=("store",),
)
