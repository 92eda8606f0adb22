"""``open_source`` and ``open_text``: open what a path is, as ``recognise`` answers it, with the user's options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastio.converters.fields.types import FieldChoice
from fastio.converters.labels.file import LabelFile, LabelOptions
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.source import Source
from fastio.errors import SourceError
from fastio.store.files.local import path_text
from fastio.store.kinds.names import is_pattern
from fastio.store.kinds.recognise import Recognised, find_text, first_level, recognise
from fastio.store.kinds.registry import SOURCES, SourceKind
from fastio.store.kinds.scan import SourcePath, check_exists

if TYPE_CHECKING:
    from fastio.converters.sources.documents import TextOptions, TextSource

__all__ = ["open_source", "open_text"]


def open_source(
    path: str | os.PathLike[str] | Recognised,
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
    found = path
    if not isinstance(found, Recognised):
        has_labels = labels is not None
        found = recognise(
            found, kind=kind, split=split, has_fields=bool(fields), has_labels=has_labels, with_text=False
        )
    place, chosen = found.place, found.kind
    assert chosen.open is not None, "text is opened by open_text"
    label_path = None if labels is None else path_text(labels, "the path of a label file as labels=")
    if label_path is not None and chosen.own_labels:
        raise SourceError(f"{place.path}: {chosen.own_labels}: drop --labels {label_path}")
    columns = label_options or LabelOptions()
    file = None if label_path is None else LabelFile(label_path, columns)
    files_root = None if root is None else path_text(root, "the folder of the files as root=")
    options = SourceOptions(file, columns, tuple(fields), files_root, as_recorded=as_recorded)
    _check_taken(place, chosen, options)
    opener = chosen.open if found.is_named else chosen.open_detected or chosen.open
    source: Source = opener(place, options)
    return source


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


def open_text(path: str | os.PathLike[str], *, kind: str = "auto", options: TextOptions | None = None) -> TextSource:
    """
    Open a source of text, ready to be packed: only names and sizes are read.

    ``auto`` goes by names. Raises SourceError if they do not tell, or if the source is not as expected.
    """
    path = os.fspath(path)
    if not is_pattern(path):
        check_exists(path)
    texts = {each.name: each for each in SOURCES.values() if each.open_text is not None}
    if kind == "auto":
        found = find_text(path)
        if found is None:
            suffixes = ", ".join(suffix for each in texts.values() for suffix in each.suffixes)
            raise SourceError(f"{path}: not text by its name; expected {suffixes}, or a folder of .txt")
        kind = found
        if texts[kind].is_text_file is not None:  # its folders are classes
            from fastio.converters.sources.folders import refuse_splits

            refuse_splits(path, [name.rpartition("/")[2] for name in first_level(path)[1]], kind)
    if kind not in texts:
        raise SourceError(f"kind of text {kind!r}: expected one of auto, {', '.join(texts)}")
    from fastio.converters.sources.documents import TextOptions

    opener = texts[kind].open_text
    assert opener is not None
    source: TextSource = opener(path, options or TextOptions())
    return source
