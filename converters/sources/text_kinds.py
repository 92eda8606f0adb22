"""TEXT_SOURCES, the table of all kinds of text; which one a path is, and ``open_text``, which opens it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fastio.converters.sources.arrow.reading import ARROW_SUFFIXES, PARQUET_SUFFIXES, SAVED_MARKS
from fastio.converters.sources.file_set import is_pattern
from fastio.converters.sources.folders import refuse_splits
from fastio.converters.sources.scan import check_exists, is_hidden
from fastio.converters.sources.streams import plain_name
from fastio.converters.sources.text_folder import text_kind
from fastio.errors import SourceError
from fastio.store.foreign.other_libraries import library_of
from fastio.store.formats import shard_suffixes
from fastio.types.picture_kinds import kind_by_name

if TYPE_CHECKING:
    from fastio.converters.sources.documents import TextOptions, TextSource

__all__ = [
    "TEXT_SOURCES",
    "TextKind",
    "find_text",
    "open_text",
]


# TextKind: what a kind of text source needs to become an entry of TEXT_SOURCES.


@dataclass(frozen=True, slots=True, kw_only=True)
class TextKind:
    """
    One kind of text that ``fastio pack`` reads.

    ``name`` is the value of ``--source-kind``, and packed stores record it; ``what`` says it in words. ``open``
    returns the source.

    A path is recognised by the ``suffixes`` of its file, or of the files in its folder; a folder also by a file with
    one of the names ``marks``, or by a file in it that ``is_file`` recognises.

    ``unpacks_to`` says what ``fastio unpack`` makes of the documents: one file each, under its key; the single file
    that they came from; or a table.
    """

    name: str
    what: str
    open: Callable[[str, TextOptions], TextSource]
    suffixes: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    is_file: Callable[[str], bool] | None = None
    unpacks_to: Literal["files", "file", "table"] = "table"


_MOST_LISTED = 1000  # folders looked into: links may lead in circles


def _open_folder(path: str, options: TextOptions) -> TextSource:
    from fastio.converters.sources.text_folder import open_folder

    return open_folder(path, options)


def _open_lines(path: str, options: TextOptions) -> TextSource:
    from fastio.converters.sources.text_lines import open_lines

    return open_lines(path, options)


def _open_table(kind: str, suffixes: tuple[str, ...], path: str, options: TextOptions) -> TextSource:
    from fastio.converters.sources.text_table import open_text_table

    return open_text_table(kind, suffixes, path, options)


def _open_datasets(path: str, options: TextOptions) -> TextSource:
    from fastio.converters.sources.text_table import open_saved_text

    return open_saved_text(path, options)


_FORMATS = {
    **{name: (f".{name}",) for name in ("jsonl", "json", "csv", "tsv")},
    "parquet": PARQUET_SUFFIXES,
    "arrow": ARROW_SUFFIXES,
}
_KINDS = (
    TextKind(
        name="text-folder",
        what="a folder of texts",
        open=_open_folder,
        is_file=lambda name: text_kind(name) != 0,
        unpacks_to="files",
    ),
    TextKind(name="lines", what="a text file", open=_open_lines, suffixes=(".txt",), unpacks_to="file"),
    *(
        TextKind(name=name, what=f"a table ({name})", open=partial(_open_table, name, suffixes), suffixes=suffixes)
        for name, suffixes in _FORMATS.items()
    ),
    TextKind(name="datasets", what="a saved dataset", open=_open_datasets, marks=SAVED_MARKS),
)

# A new kind of text is a file that opens it, and an entry here. The command line, its help and its errors learn of it
# from here.
TEXT_SOURCES: dict[str, TextKind] = {kind.name: kind for kind in _KINDS}


def open_text(path: str | os.PathLike[str], *, kind: str = "auto", options: TextOptions | None = None) -> TextSource:
    """
    Open a source of text, ready to be packed: only names and sizes are read.

    ``auto`` goes by names. Raises SourceError if they do not tell, or if the source is not as expected.
    """
    path = os.fspath(path)
    if not is_pattern(path):
        check_exists(path)
    if kind == "auto":
        found = find_text(path)
        if found is None:
            suffixes = ", ".join(suffix for each in TEXT_SOURCES.values() for suffix in each.suffixes)
            raise SourceError(f"{path}: not text by its name; expected {suffixes}, or a folder of .txt")
        kind = found
        if TEXT_SOURCES[kind].is_file is not None:  # its folders are classes
            refuse_splits(path, [name.rpartition("/")[2] for name in _listed(path)[1]], kind)
    if kind not in TEXT_SOURCES:
        raise SourceError(f"kind of text {kind!r}: expected one of auto, {', '.join(TEXT_SOURCES)}")
    from fastio.converters.sources.documents import TextOptions

    return TEXT_SOURCES[kind].open(path, options or TextOptions())


def find_text(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of text that the names in ``path`` indicate; None if they do not indicate text."""
    path = os.fspath(path)
    if library_of(path):
        return None
    return _kind_of_folder(path) if Path(path).is_dir() else _kind_of(path)


def _kind_of(name: str) -> str | None:
    """The kind that the suffix of a file stands for."""
    suffix = Path(plain_name(name)).suffix.lower()
    return next((each.name for each in TEXT_SOURCES.values() if suffix in each.suffixes), None)


def _kind_of_folder(path: str) -> str | None:
    """The kind that the names in a folder and in the first folder of it that holds files speak for."""
    try:
        names, folders = _listed(path)
        for each in TEXT_SOURCES.values():
            if not each.marks.isdisjoint(names):
                return each.name
        top = list(names)
        names += _first_files(folders)
    except OSError:
        return None  # whoever opens it says why
    shards = tuple(shard_suffixes())
    if any(kind_by_name(name) or name.endswith(shards) for name in names):
        return None
    for each in TEXT_SOURCES.values():
        if each.is_file is not None and any(map(each.is_file, names)):
            return each.name
    tables = set(map(_kind_of, top)) - {None}
    return tables.pop() if len(tables) == 1 else None


def _first_files(folders: list[str]) -> list[str]:
    """Names of the files in the first folder that holds some, at any depth; hidden folders say nothing."""
    waiting = folders[::-1]
    for _ in range(_MOST_LISTED):
        if not waiting:
            break
        folder = waiting.pop()
        if not is_hidden(folder.rpartition("/")[2]):
            names, below = _listed(folder)
            if names:
                return names
            waiting += below[::-1]
    return []


def _listed(folder: str) -> tuple[list[str], list[str]]:
    """Names of the files in a folder; paths of its folders, sorted."""
    names, folders = list[str](), list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry.path)
            else:
                names.append(entry.name)
    return names, sorted(folders)
