"""TFRecord files of tf.train.Example, whose features are the fields of samples."""

from __future__ import annotations

import re
from pathlib import Path

from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.shard_files import FileSet, first_file
from fastio.converters.tfrecord.framing import begins_like_records, is_gzip

__all__ = ["KIND", "open_tfrecord"]

_SUFFIXES = (".tfrecords", ".tfrecord", ".tfrec")
_NAMES = re.compile(r"(?:.*\.tfrec(?:ords?)?(?:-[0-9]+-of-[0-9]+)?(?:\.gz)?|[^.]*-[0-9]+-of-[0-9]+)\Z")


def open_tfrecord(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a TFRecord file, those that a pattern matches, or those in a folder; see ``record_source``."""
    from fastio.converters.tfrecord.source import record_source

    files = FileSet.of(place, _is_name, "a TFRecord file", ", ".join((*_SUFFIXES, "-00000-of-00010")))
    return record_source(KIND.name, place, files, options, _SUFFIXES)


def _is_name(name: str) -> bool:
    return _NAMES.match(name) is not None and not name.startswith(".")


def _signs(place: SourcePath) -> str:
    """Whether there is a file of this name; without such a name, the checksum at its beginning tells."""
    first = first_file(place, _is_name)
    is_named = any(suffix in Path(first).name for suffix in _SUFFIXES)
    if not first and Path(place.path).is_file():
        first = place.path
    is_one = bool(first) and (begins_like_records(first) or (is_named and is_gzip(first)))
    return "TFRecord files" if is_one or is_named else ""


KIND = SourceKind(
    name="tfrecord",
    what="TFRecord files",
    signs=_signs,
    open=open_tfrecord,
    own_labels="its features hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
)
