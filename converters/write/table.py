"""A table beside a store: its rows as a packed store, made once and kept in the cache directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastio.converters.sources.tables.rows import TableFile
from fastio.converters.write.datasets import field_name
from fastio.converters.write.writer import Writer
from fastio.errors import FastioError, SampleError, SchemaError, SourceError, StoreError
from fastio.store import open_store
from fastio.store.files import open_file
from fastio.store.files.local import identity_of, is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.store import SealedStore
from fastio.store.kinds.remote_copy import RemoteCopy
from fastio.store.write.writer import DuplicateKeyError

__all__ = ["open_packed"]

_RULES = 2  # by which rows become samples


def open_packed(path: str, key: str, remote: Remote = DEFAULT, *, first_of_double: bool = False) -> SealedStore:
    """
    Open the rows of a table (JSON lines, JSON, Parquet, Arrow) as samples: ``key`` is the column with their keys, the
    others are fields, with names and types as ``fastio.pack`` gives them. Of rows with one key, the first is taken with
    ``first_of_double``, which keeps all keys in memory once; they are refused otherwise.

    They are packed into the cache directory, once for each version of the file, which is brought here if it lies behind
    a URL. Raises SourceError for rows that cannot be read and a column that is not there, SchemaError for values whose
    type is unclear, SampleError for a row that does not fit, and StoreError if the cache directory cannot be written
    to.
    """
    place = os.path.realpath(path) if is_local(path) else path
    out = _place(place, key)
    mark = {"first_of_double": True} if first_of_double else {}
    with suppress(StoreError):  # none yet, or a damaged one: packed anew
        store = open_store(out)
        if store.metadata.get("packed_table") == _bound(place, key, _identity(place, remote)) | mark:
            return store
        store.close()
    if is_local(path):
        _pack(TableFile(path), path, key, out, _bound(place, key, _identity(place, remote)) | mark)
    else:
        copy = RemoteCopy(path, remote)
        with copy.named():
            _pack(TableFile(copy.path), path, key, out, _bound(place, key, copy.identity) | mark)
    return open_store(out)


def _identity(place: str, remote: Remote) -> Mapping[str, int | str]:
    """What tells versions of the table apart."""
    if is_local(place):
        return identity_of(Path(place).stat())
    file = open_file(place, options=remote)
    file.release()
    return file.identity


def _bound(place: str, key: str, identity: Mapping[str, int | str]) -> dict[str, Any]:
    """What a packed table belongs to: this version of it. Of a URL, which may hold a password, the name is kept."""
    version = {name: value for name, value in identity.items() if name != "inode"}
    return {"rules": _RULES, "table": place if is_local(place) else Path(place).name, "key": key, "version": version}


def _pack(table: TableFile, path: str, key: str, out: str, bound: Mapping[str, Any]) -> None:
    """Write the rows of a table, which the user called ``path``, as a store."""
    if not table.is_typed:
        raise SourceError(
            f"{path}: the cells of a .{table.kind} have no types: pack it (fastio pack), and give the store instead"
        )
    names = _names(table, key)
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        with Writer(out, list(names.values()), overwrite=True, metadata={"packed_table": bound}) as writer:
            for _, row_key, row in _rows(table, key, names, once="first_of_double" in bound):
                writer.write(row, key=row_key)
    except (FastioError, OSError) as exc:
        if isinstance(exc, (SampleError, DuplicateKeyError)):
            _check_double(table, path, key, names)
        exc.add_note(
            f"{path}: read as a table beside a store; with a type for each field: fastio.pack(rows, 'NAME.h5')"
        )
        if isinstance(exc, OSError):
            raise StoreError(
                f"{out}: the rows of {path} cannot be kept there ({exc.strerror or exc}): set XDG_CACHE_HOME"
            ) from exc
        raise


def _check_double(table: TableFile, path: str, key: str, names: Mapping[str, str]) -> None:
    """Raise SchemaError for the first two rows that have one key."""
    seen: dict[str, int] = {}
    for number, row_key, _ in _rows(table, key, names):
        if row_key in seen:
            raise SchemaError(
                f"{path}:{number}: has {row_key!r} in the column {key!r}, as row {seen[row_key]} has: keep one row a "
                "key, or take the first of each by allow=('double',) (--allow double)"
            )
        seen[row_key] = number


def _place(path: str, key: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - may fail without a home
    digest = hashlib.sha256(os.fsencode(f"{path}\0{key}")).hexdigest()[:16]
    return f"{cache}/fastio/{Path(path).name}-{digest}.h5"


def _names(table: TableFile, key: str) -> dict[str, str]:
    """Return the name of the field of each column but the key's."""
    first = next((row for _, row in table.rows() if not isinstance(row, str)), None)
    if first is None:
        raise SourceError(f"{table.path}: has no row that can be read")
    if key not in first:
        raise SourceError(
            f"{table.path}: has no column {key!r}; on=COLUMN (--on COLUMN) says which one has the keys of the samples: "
            f"there is {', '.join(first)}"
        )
    names: dict[str, str] = {}
    for title in first:
        if title != key:
            names[title] = field_name(title)
    twice = next((title for title in names if list(names.values()).count(names[title]) > 1), None)
    if twice is not None:
        raise SchemaError(f"{table.path}: several columns would be the field {names[twice]!r}: rename {twice!r}")
    if not names:
        raise SourceError(f"{table.path}: has no column but {key!r}, so nothing to read beside a store")
    return names


def _rows(
    table: TableFile, key: str, names: Mapping[str, str], *, once: bool = False
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield number, key and values of each row; ``once`` leaves out those whose key has come before."""
    seen: set[str] = set()
    for number, row in table.rows():
        if isinstance(row, str):
            raise SourceError(f"{table.path}:{number}: {row}")
        value = row.get(key)
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise SourceError(f"{table.path}:{number}: has {value!r:.60} in the column {key!r}, expected a key")
        other = next((title for title in row if title != key and title not in names), None)
        if other is not None:
            raise SourceError(f"{table.path}:{number}: has a column {other!r}, which the first row lacks")
        if once and str(value) in seen:
            continue
        if once:
            seen.add(str(value))
        yield number, str(value), {name: row.get(title) for title, name in names.items()}
