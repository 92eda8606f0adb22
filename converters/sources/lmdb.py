"""LMDB files of other programs: pictures under keys, Caffe's Datum, text recognition, pickled samples."""

from __future__ import annotations

import os
from pathlib import Path

from fastio.converters.containers.of_others import is_of_others
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource

__all__ = ["KIND"]

_DATA = "data.mdb"  # in the folder of an environment


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.containers.lmdb_source import open_lmdb

    path = os.path.join(place.path, _DATA) if place.is_folder else place.path  # noqa: PTH118 - as the user wrote it
    return open_lmdb(place, path, options)


def _signs(place: SourcePath) -> str:
    """The mark of LMDB in a file, or the file of an environment in a folder."""
    if place.is_folder:
        return "an LMDB environment" if (Path(place.path) / _DATA).is_file() else ""
    return "an LMDB file" if is_of_others(place.path, "lmdb") else ""


KIND = SourceKind(
    name="lmdb",
    what="an LMDB file of another program",
    signs=_signs,
    open=_open,
    own_labels="values of an LMDB file have their own labels",
    takes_fields=True,
    covers=("store",),
)
