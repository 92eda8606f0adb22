"""``recognise``: the one answer to what a path is, for all who pack it, describe it or open it."""

from __future__ import annotations

import glob
import os
import re
import shlex
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from fastio.errors import SourceError
from fastio.store.files.local import expanded, is_local, path_text
from fastio.store.foreign.other_libraries import library_of
from fastio.store.formats import names_store, shard_suffixes
from fastio.store.kinds.names import is_of_part, is_pattern, is_table_name, matching, plain_name
from fastio.store.kinds.registry import IMAGEFOLDER, SOURCES, SourceKind, later
from fastio.store.kinds.scan import SourcePath, check_exists, is_hidden, names_in
from fastio.store.kinds.unknown import holds_pictures, unknown
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.token_files import find_token_files
from fastio.types.picture_kinds import kind_by_name
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.remote_copy import RemoteCopy

__all__ = [
    "Recognised",
    "find_text",
    "first_level",
    "not_packed",
    "pack_command",
    "recognise",
    "recognise_unpacked",
    "split_folder",
]


@dataclass(frozen=True, slots=True)
class Recognised:
    """
    What a path is: samples of a kind in SOURCES, or text of one (``is_text``). ``signs`` are the words for what
    indicates it, "" if the user said so (``is_named``) or it is text, which names indicate. ``copy`` is what was
    brought here of a URL: ``place`` is the copy. ``split`` is the part of ``place`` that its kind is to open; None if
    ``place`` is that part already, or if there are no parts.
    """

    place: SourcePath
    kind: SourceKind
    is_text: bool
    is_named: bool
    signs: str = ""
    copy: RemoteCopy | None = None
    split: str | None = None


def recognise(  # noqa: PLR0913 - an option each
    path: str | os.PathLike[str],
    *,
    kind: str = "auto",
    split: str | None = None,
    has_fields: bool = False,
    has_labels: bool = False,
    has_root: bool = False,
    is_table: bool = False,
    with_text: bool = True,
    about_text: bool = False,
    remote: Remote | None = None,
) -> Recognised:
    """
    Answer what ``path`` is, by the names in it and the beginnings of files; ``kind`` is the user's own answer.

    A table is text unless it holds pictures, or options were given that only samples have (``is_table``); those that
    only text has (``about_text``) decide for text. ``has_root`` says that the folder of the files is given that a table
    names. Without ``with_text``, everything is samples. A table behind a URL
    is brought here as ``remote`` says; without it, URLs are refused. Raises SourceError if the path is nothing that is
    known, saying what was seen in it, or if it could be meant in two ways.
    """
    expected = "one path to pack: a folder, a file, or a pattern such as 'data/*.parquet' for several files"
    path = expanded(path_text(path, expected))
    if not is_local(path):
        if remote is None:
            raise SourceError(
                f"{path}: is a URL: a single table is packed from there by `fastio pack`, a packed store is copied by "
                f"`fastio stage {path} DIR`, other files by the tools of their server"
            )
        from fastio.store.kinds.remote_copy import RemoteCopy

        copy = RemoteCopy(path, remote)
        with copy.named():
            brought = recognise(
                copy.path,
                kind=kind,
                split=split,
                has_fields=has_fields,
                has_labels=has_labels,
                has_root=has_root,
                is_table=is_table,
                with_text=with_text,
                about_text=about_text,
            )
        return replace(brought, copy=copy)
    whole = path
    if split is not None:
        split = path_text(split, "the name of a part of the dataset as split=")
        if is_pattern(path):
            raise SourceError(f"{path}: a pattern names the files of a part itself: drop --split, or name the folder")
        owner, signs = _owner_of_splits(path, kind)
        if owner is not None:
            return Recognised(SourcePath(path), owner, is_text=False, is_named=not signs, signs=signs, split=split)
        path = split_folder(path, split)
    text = _text(path, kind, is_table=is_table, about_text=about_text) if with_text else None
    if text is not None:
        return Recognised(SourcePath(path), text, is_text=True, is_named=kind != "auto")
    named = None if kind == "auto" else _kind_called(kind)
    if not Path(path).exists() and not (is_pattern(path) or names_store(path) or find_token_files(path)):
        check_exists(path)  # a store's own error says more
    place = SourcePath(path)
    if named is not None:
        return Recognised(place, named, is_text=False, is_named=True)
    found, signs = _detect(place, has_fields=has_fields, has_labels=has_labels, has_root=has_root)
    if split is not None and not (found.own_labels or has_labels):
        _check_table_of(whole, split)
    return Recognised(place, found, is_text=False, is_named=False, signs=signs)


def recognise_unpacked(path: str, options: Unpacked) -> Recognised:
    """Answer what ``path`` is, of which ``options`` tell the rest; see ``recognise``."""
    return recognise(
        path,
        kind=options.kind,
        split=options.split,
        has_fields=bool(options.fields),
        has_labels=options.labels is not None,
        has_root=options.root is not None,
        with_text=options == AS_IT_IS,
    )


def not_packed(path: str, options: Unpacked = AS_IT_IS, *, why: str = "") -> str:
    """
    Return one line for those who wanted to open ``path`` as a store, which it is not: what was seen in it, which kind
    of source it is by ``options``, ``why`` it cannot be read where it lies, and the command that packs it.
    """
    try:
        found = recognise_unpacked(path, options)
        if found.kind.open_detected is not None and not found.is_text:  # it may be doubtful, and says what to type then
            later("fastio.converters.sources.opening:open_source")(found)
        if found.is_text and found.kind.open is not None:  # packing refuses one with pictures that it would leave out
            later("fastio.converters.sources.opening:open_text")(found)
    except SourceError as exc:
        return str(exc)
    what, signs = found.kind.what, found.signs
    seen = f"{what} ({signs})" if signs and signs not in what else what  # "Parquet files (Parquet files)" says it twice
    state = f"but cannot be read where it lies, because {why}" if why else "and not packed yet"
    remedy = "Open it where it lies by fastio.TokenStream, or pack it" if found.kind.takes_ids else "Pack it"
    return f"{path}: is {seen}, {state}. {remedy}: {pack_command(path, *options.words())}"


def pack_command(path: str, *options: str) -> str:
    """
    Return a command that packs a source into a file that does not exist yet.

    >>> pack_command("data/train.parquet", "--text-column", "body")
    'fastio pack data/train.parquet train.lmdb --text-column body'
    """
    stem = Path(path.rstrip("/")).name.partition(".")[0].strip("*?-_") or "out"
    out = next(name for name in (f"{stem}{'-' * bool(i)}{i or ''}.lmdb" for i in count()) if not Path(name).exists())
    return shlex.join(["fastio", "pack", path, out, *options])


def _kind_called(name: str) -> SourceKind:
    kinds = [each for each in SOURCES.values() if each.open is not None]
    for each in kinds:
        if name == each.name or name in each.aliases:
            return each
    raise SourceError(f"kind of source {name!r}: expected one of auto, {', '.join(each.name for each in kinds)}")


def _owner_of_splits(path: str, kind: str) -> tuple[SourceKind | None, str]:
    """
    The kind that finds the parts of the dataset ``path`` by itself, and the signs of it; None if parts are folders.

    Raises SourceError if several kinds would.
    """
    check_exists(path)
    if kind != "auto":
        named = next((each for each in SOURCES.values() if kind in (each.name, *each.aliases)), None)
        return (named if named is not None and named.takes_split else None), ""
    place, owners = SourcePath(path), [each for each in SOURCES.values() if each.takes_split]
    signs = {each.name: words for each in owners if (words := each.signs(place))}
    name, words = _only(path, signs)
    return (SOURCES[name] if name else None), words


def _only(path: str, signs: dict[str, str]) -> tuple[str, str]:
    """The kind that is left with its signs, "" if none is. Raises SourceError if there are several."""
    covered = {name for sign in signs for name in SOURCES[sign].covers}
    signs = {name: words for name, words in signs.items() if name not in covered}
    if len(signs) > 1:
        found, kinds = ", ".join(signs.values()), " or ".join(signs)
        raise SourceError(f"{path}: holds {found}, so its kind is unclear: add --source-kind {kinds}")
    return next(iter(signs.items()), ("", ""))


def _detect(place: SourcePath, *, has_fields: bool, has_labels: bool, has_root: bool) -> tuple[SourceKind, str]:
    """
    The one kind of samples that ``place`` shows signs of, and these.

    Fields asked for speak for the kinds that take some, if there is one; a label file for those that need one.
    """
    signs = {
        name: words
        for name, each in SOURCES.items()
        if (has_fields or not each.needs_fields)
        and (words := each.signs(place) or (each.signs_of_names(place) if has_root else ""))
    }
    if has_labels and any(not SOURCES[name].own_labels for name in signs):
        signs = {
            name: words for name, words in signs.items() if not (SOURCES[name].covers and SOURCES[name].own_labels)
        }
    covered = {name for sign in signs for name in SOURCES[sign].covers}
    signs = {name: words for name, words in signs.items() if name not in covered}
    if has_fields and any(SOURCES[name].takes_fields for name in signs):
        signs = {name: words for name, words in signs.items() if SOURCES[name].takes_fields}
    if [*signs] == [IMAGEFOLDER.name] and not holds_pictures(place.path):
        signs = {}
    name, words = _only(place.path, signs)
    if name:
        return SOURCES[name], words
    if is_pattern(place.path):
        if found := matching(place.path):
            raise SourceError(
                f"{place.path}: matches {counted(len(found), 'file')}, e.g. {found[0]!r}: expected a pattern of "
                "TFRecord, Parquet or Arrow files, tables or text: name the folder"
            )
        raise SourceError(f"{place.path}: no file has a name like that")
    if known := library_of(place.path):
        raise SourceError(f"{place.path}: is {known}")
    raise unknown(place.path, [*SOURCES.values()])


# Text, which names alone indicate.

_OF_LMDB = "data.mdb"  # beside which BasicSR keeps a .txt of names
_MOST_LISTED = 1000  # folders looked into: links may lead in circles


def _text(path: str, kind: str, *, is_table: bool, about_text: bool) -> SourceKind | None:
    """The kind of text that a path is; None if it is packed as samples."""
    name = find_text(path) if kind == "auto" else kind
    text = None if name is None else SOURCES.get(name)
    if text is None or text.open_text is None:
        return None
    if about_text:
        return text
    others = [each for each in SOURCES.values() if text.name in each.text_kinds]
    place = SourcePath(path)
    is_asked = is_table and any(each.takes_columns or each.takes_fields for each in others)
    is_said = kind != "auto" and text.open is None  # a name that stands for text alone
    return None if is_asked or (not is_said and any(each.has_more_than_text(place) for each in others)) else text


def find_text(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of text that the names in ``path`` indicate; None if they do not indicate text."""
    path = os.fspath(path)
    if library_of(path):
        return None
    return _kind_of_folder(path) if Path(path).is_dir() else _kind_of(path)


def _texts() -> list[SourceKind]:
    return [each for each in SOURCES.values() if each.open_text is not None]


def _kind_of(name: str) -> str | None:
    """The kind that the suffix of a file stands for."""
    suffix = Path(plain_name(name)).suffix.lower()
    return next((each.name for each in _texts() if suffix in each.suffixes), None)


def _kind_of_folder(path: str) -> str | None:
    """The kind that the names in a folder and in the first folder of it that holds files speak for."""
    try:
        names, folders = first_level(path)
        for each in _texts():
            if not each.marks.isdisjoint(names):
                return each.name
        top = list(names)
        names += _first_files(folders)
    except OSError:
        return None  # whoever opens it says why
    shards = tuple(shard_suffixes())
    if any(kind_by_name(name) or name.endswith(shards) or name == _OF_LMDB for name in names):
        return None
    for each in _texts():
        if each.is_text_file is not None and any(map(each.is_text_file, names)):
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
            names, below = first_level(folder)
            if names:
                return names
            waiting += below[::-1]
    return []


def first_level(folder: str) -> tuple[list[str], list[str]]:
    """Return the names of the files in a folder, and the paths of its folders, sorted. Raises OSError."""
    names, folders = list[str](), list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry.path)
            else:
                names.append(entry.name)
    return names, sorted(folders)


# One part of a dataset.

_SHOWN = 10  # folders listed in a message


def split_folder(path: str, split: str) -> str:
    """
    Return the folder of one part of a dataset, ``path/split``, or a pattern of the files of that name in ``path``.

    Raises SourceError that lists the existing folders if there are neither.
    """
    check_exists(path)
    folder = Path(path, split)
    if folder.is_dir() and Path(split).name == split != "..":
        return str(folder)
    if pattern := _split_pattern(path, split):
        return pattern
    there = sorted(each.name for each in Path(path).iterdir() if each.is_dir()) if Path(path).is_dir() else []
    more = ", ..." if len(there) > _SHOWN else ""
    found = f"its folders are {', '.join(map(repr, there[:_SHOWN]))}{more}" if there else "it has no folders"
    raise SourceError(f"{path}: has no folder {split!r} for --split; {found}")


def _check_table_of(path: str, split: str) -> None:
    """Raise SourceError if a table beside the pictures of a split has its name: their labels would be lost."""
    tables = [name for name in names_in(path)[1] if is_table_name(name) and name.partition(".")[0] == split]
    if tables:
        paths = (Path(path, tables[0]), Path(path, split), f"{split}.lmdb")
        table, folder, out = (shlex.quote(str(each)) for each in paths)
        raise SourceError(
            f"{path}: {tables[0]!r} beside {split!r} names no picture in there by its first rows, so they would come "
            f"without it: `fastio pack {table} {out} --root {folder}` says which names are missing; "
            f"`fastio pack {folder} {out}` packs the pictures alone"
        )


def _split_pattern(path: str, split: str) -> str:
    """The file, or a pattern of the files, below ``path`` whose names speak of this split; "" if none do."""
    place = SourcePath(path)
    if not place.is_folder:
        return ""
    for folder in (path, *(f"{path}/{name}" for name in place.top.folders if not is_hidden(name))):
        names = sorted(each.name for each in os.scandir(folder) if each.is_file() and is_of_part(each.name, split))
        if len(names) == 1:
            return f"{folder}/{names[0]}"
        if names:
            pattern = f"{glob.escape(folder)}/{re.sub('[0-9]+', '*', glob.escape(names[0]))}"
            if [f"{folder}/{name}" for name in names] != matching(pattern):
                listed = f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
                raise SourceError(
                    f"{folder}: {listed} are of the split {split!r}, but no single pattern matches just them"
                )
            return pattern
    return ""
