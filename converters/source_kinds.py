"""SOURCES, the table of all kinds of sources, and ``open_source``, which finds out of which one a path is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fastio.converters.ambiguous import split_folder
from fastio.converters.fields_asked import FieldChoice
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.labels import LabelFile, LabelOptions
from fastio.converters.other_containers import folder_kind, kind_of
from fastio.converters.scan import check_exists
from fastio.converters.shard_files import is_pattern
from fastio.converters.source import Source
from fastio.converters.sources import (
    arrow,
    cifar,
    coco,
    flat,
    hdf5,
    imagefolder,
    lmdb,
    metadata,
    npy,
    pairs,
    parquet,
    saved_dataset,
    store,
    table,
    tfrecord,
)
from fastio.converters.sources import zip as zip_archive
from fastio.errors import SourceError
from fastio.store.files.local import is_local, path_text
from fastio.store.other_libraries import library_of

__all__ = ["SOURCES", "open_source"]

# A new kind of source is one file and its name here. The command line, its help and its errors learn of it from here.
SOURCES: dict[str, SourceKind] = {
    each.name: each
    for each in (
        flat.KIND,
        imagefolder.KIND,
        pairs.KIND,
        coco.KIND,
        table.KIND,
        metadata.KIND,
        npy.KIND,
        cifar.KIND,
        hdf5.KIND,
        lmdb.KIND,
        zip_archive.KIND,
        store.KIND,
        parquet.KIND,
        arrow.KIND,
        saved_dataset.KIND,
        tfrecord.KIND,
    )
}


def open_source(
    path: str | os.PathLike[str],
    *,
    kind: str = "auto",
    labels: str | os.PathLike[str] | None = None,
    label_options: LabelOptions | None = None,
    split: str | None = None,
    fields: Sequence[FieldChoice] = (),
    root: str | os.PathLike[str] | None = None,
    as_recorded: bool = False,
) -> Source:
    """
    Open a dataset to be packed: only names and sizes are scanned.

    ``kind`` is a name in SOURCES, or "auto": decided by what is in ``path``, if only one kind fits. ``labels`` names
    a label file, for kinds that take one. ``split`` is a folder in ``path``, which then is the source. ``fields``,
    ``root`` and ``as_recorded`` are described in ``SourceOptions``. Raises SourceError if the source is not as
    expected, holds pictures that would not be packed, or could be meant in two ways; it says what was found and what
    to choose from.
    """
    path = path_text(
        path, "one path to pack: a folder, a file, or a pattern such as 'data/*.parquet' for several files"
    )
    if not is_local(path):
        raise SourceError(
            f"{path}: is a URL, from which nothing is packed: a packed store is copied by `fastio stage {path} DIR`, "
            "other files by the tools of their server; then pack the copy"
        )
    named = None if kind == "auto" else _kind_called(kind)
    if not Path(path).exists() and not (is_pattern(path) or store.names_store(path)):
        check_exists(path)  # a store's own error says more
    place = SourcePath(
        path if split is None else split_folder(path, path_text(split, "the name of a folder as split="))
    )
    chosen = named or _detect(place, has_fields=bool(fields), has_labels=labels is not None)
    label_path = None if labels is None else path_text(labels, "the path of a label file as labels=")
    if label_path is not None and chosen.own_labels:
        raise SourceError(f"{place.path}: {chosen.own_labels}: drop --labels {label_path}")
    columns = label_options or LabelOptions()
    file = None if label_path is None else LabelFile(label_path, columns)
    files_root = None if root is None else path_text(root, "the folder of the files as root=")
    options = SourceOptions(file, columns, tuple(fields), files_root, as_recorded=as_recorded)
    _check_taken(place, chosen, options)
    opener = chosen.open if named else chosen.open_detected or chosen.open
    return opener(place, options)


def _check_taken(place: SourcePath, kind: SourceKind, options: SourceOptions) -> None:
    """SourceError for options that the kind would ignore."""
    without = options.columns.ignore_columns
    if without and not (options.labels or kind.takes_columns or kind.takes_without):
        raise SourceError(f"{place.path}: is {kind.what}, which has no columns: drop --without {without[0]}")
    takers = {"fields": "takes_fields", "root": "takes_root"}
    for option, takes in takers.items():
        if getattr(options, option) and not getattr(kind, takes):
            others = ", ".join(each.name for each in SOURCES.values() if getattr(each, takes)) or "no kind"
            raise SourceError(
                f"{place.path}: is {kind.what}, which takes no --{option.removesuffix('s')}; it is for {others}: drop "
                "it, or name another --source-kind"
            )


def _kind_called(name: str) -> SourceKind:
    for each in SOURCES.values():
        if name == each.name or name in each.aliases:
            return each
    raise SourceError(f"kind of source {name!r}: expected one of auto, {', '.join(SOURCES)}")


def _detect(place: SourcePath, *, has_fields: bool, has_labels: bool) -> SourceKind:
    """
    The one kind of source that ``place`` shows signs of.

    Fields asked for speak for the kinds that take some, if there is one; a label file for those that need one.
    """
    signs = {
        name: words
        for name, each in SOURCES.items()
        if (has_fields or not each.needs_fields) and (words := each.signs(place))
    }
    if has_labels and any(not SOURCES[name].own_labels for name in signs):
        signs = {
            name: words for name, words in signs.items() if not (SOURCES[name].covers and SOURCES[name].own_labels)
        }
    covered = {name for sign in signs for name in SOURCES[sign].covers}
    signs = {name: words for name, words in signs.items() if name not in covered}
    if has_fields and any(SOURCES[name].takes_fields for name in signs):
        signs = {name: words for name, words in signs.items() if SOURCES[name].takes_fields}
    if len(signs) == 1:
        return SOURCES[next(iter(signs))]
    expected = f"{', '.join(each.what for each in SOURCES.values())} or text"
    if signs:
        found, kinds = ", ".join(signs.values()), " or ".join(signs)
        raise SourceError(f"{place.path}: holds {found}, so its kind is unclear: add --source-kind {kinds}")
    if is_pattern(place.path):
        raise SourceError(f"{place.path}: no file has a name like that")
    if known := library_of(place.path):
        raise SourceError(f"{place.path}: is {known}")
    if not place.is_folder:
        raise SourceError(f"{place.path}: expected {expected}, found {kind_of(place.path)}")
    names = [*(each.key for each in (*place.top.problems, *place.top.left_out)), *place.top.folders]
    if not names:
        raise SourceError(f"{place.path}: is empty; expected {expected}")
    known = folder_kind(names) or f"others only, {len(names):,} in all, such as {names[0]!r}"
    raise SourceError(f"{place.path}: expected {expected}, found {known}")
