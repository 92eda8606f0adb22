"""Packs text into stores of tokens or UTF-8, and unpacks them again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fastio.converters.ambiguous import refuse_splits
from fastio.converters.junk import is_hidden
from fastio.converters.other_libraries import library_of
from fastio.converters.streams import plain_name
from fastio.converters.text import arrow, folder, lines, table
from fastio.converters.text.documents import Documents, Limits, TextOptions, TextSource
from fastio.converters.text.encode import Encoder, Sequences
from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.kind import TextKind
from fastio.converters.text.pack import TextReport, pack_text
from fastio.converters.text.tokenizer import BytesTokenizer, Tokenizer
from fastio.errors import SourceError
from fastio.store.formats import shard_suffixes
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "TEXT_SOURCES",
    "BytesTokenizer",
    "Documents",
    "Encoder",
    "HuggingFaceTokenizer",
    "Limits",
    "Sequences",
    "TextKind",
    "TextOptions",
    "TextReport",
    "TextSource",
    "Tokenizer",
    "find_text",
    "load_tokenizer",
    "open_text",
    "pack_text",
]

# A new kind of text is one file and one line here. The command line, its help and its errors learn of it from here.
TEXT_SOURCES: dict[str, TextKind] = {each.name: each for each in (folder.KIND, lines.KIND, *table.KINDS, *arrow.KINDS)}
_MOST_LISTED = 1000  # folders looked into: links may lead in circles


def open_text(path: str | os.PathLike[str], *, kind: str = "auto", options: TextOptions | None = None) -> TextSource:
    """
    Open a source of text, ready to be packed: only names and sizes are read.

    ``auto`` goes by names. Raises SourceError if they do not tell, or if the source is not as expected.
    """
    path = os.fspath(path)
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
    return TEXT_SOURCES[kind].open(path, options or TextOptions())


def load_tokenizer(name: str, special: Mapping[str, str] | None = None) -> Tokenizer:
    """
    Load ``bytes``, or a Hugging Face ``tokenizers`` JSON by its path; ``special`` names its tokens by role (bos,
    ...).
    """
    if name != "bytes":
        return HuggingFaceTokenizer.load(name, special)
    if special:
        raise SourceError("the tokenizer of bytes has its own special tokens: drop --special")
    return BytesTokenizer()


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
    with os.scandir(folder) as entries:
        inside = list(entries)
    return [e.name for e in inside if not e.is_dir()], sorted(e.path for e in inside if e.is_dir())
