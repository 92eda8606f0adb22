"""The table that a store's fields came from, written again from them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.codec.json_text import parse_json
from fastio.converters.checksum import damaged
from fastio.converters.extra import pyarrow
from fastio.converters.file_names import file_name
from fastio.errors import StoreCorrupt
from fastio.store import SampleStore
from fastio.store.values import read_values
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["StoredTable", "decoded", "plain_numbers", "sound_values"]

_ROWS = 512
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, slots=True)
class StoredTable:
    """
    How a table becomes rows again, from a store's ``metadata["table"]``: its ``name``, and its ``columns`` in order.

    Each column has a ``path`` (its title, and names below it if only a part of its JSON was packed), and what its value
    is: a ``field``, the name of a ``file``, or the ``key`` of the sample.
    """

    store: SampleStore
    name: str
    columns: Sequence[Mapping[str, Any]]
    form: Mapping[str, Any]

    @classmethod
    def of(cls, store: SampleStore) -> StoredTable | None:
        """Return the table of a store, None if it does not come from one. Raises StoreCorrupt for a malformed one."""
        form = store.metadata.get("table")
        if form is None:
            return None
        try:
            columns = form["columns"]
            names = [each.get("field") or each.get("file") for each in columns]
            pairs = zip(columns, names, strict=True)
            is_sound = all(each["path"] and ("key" in each or name in store.schema) for each, name in pairs)
            name = str(form["name"])
        except (AttributeError, KeyError, TypeError) as exc:
            raise StoreCorrupt(f"{store.path}: its table is not described in fastio's form ({exc})") from exc
        if not is_sound or PurePath(name).name != name:
            raise StoreCorrupt(f"{store.path}: its table {name!r} is described by fields that it does not have")
        return cls(store, name, columns, form)

    @property
    def fields(self) -> set[str]:
        """The payload fields that the table holds, and no file of their own."""
        named = {each.get("field") for each in self.columns}
        return {field.name for field in self.store.schema.payload if field.name in named}

    @property
    def written_fields(self) -> set[str]:
        """All fields of which the table says something."""
        return {str(each.get("field") or each.get("file")) for each in self.columns}

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the file, in parts."""
        suffix = PurePath(self.file_name).suffix.lower()
        if suffix in _DELIMITERS:
            yield from self._cells(_DELIMITERS[suffix])
        elif suffix == ".parquet":
            yield self._parquet()
        elif suffix == ".json":
            rows = (json.dumps(row, ensure_ascii=False).encode() for row in self.rows())
            yield b"[" + next(rows, b"")
            yield from (b",\n" + row for row in rows)
            yield b"]\n"
        else:
            style = {"ensure_ascii": False, **(self.form.get("style") or {})}
            for row in self.rows():
                yield json.dumps(row, **style).encode() + b"\n"

    @property
    def file_name(self) -> str:
        """The name of the file: that of the source, without the suffix of a compression."""
        path = PurePath(self.name)
        return path.stem if path.suffix.lower() in (".gz", ".zst") else self.name

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, in the order of the samples."""
        absent = set(self.form.get("absent") or ())
        for start in range(0, len(self.store), _ROWS):
            indices = np.arange(start, min(start + _ROWS, len(self.store)))
            values = [self._values(each, indices) for each in self.columns]
            for i in range(len(indices)):
                row: dict[str, Any] = {}
                for each, column in zip(self.columns, values, strict=True):
                    _put(row, each["path"], column[i])
                yield {title: value for title, value in row.items() if value is not None or title not in absent}

    def _values(self, column: Mapping[str, Any], indices: NDArray[np.int64]) -> list[Any]:
        store = self.store
        if "key" in column:
            keys = store.keys(indices)
            return [int(key) for key in keys] if column["key"] == "int" else list(keys)
        if "file" in column:
            described = (store.metadata.get("files") or {}).get(column["file"])
            return [key if described is None else file_name(described, key) for key in store.keys(indices)]
        field = store.schema[column["field"]]
        if not field.is_column:
            return decoded(field, sound_values(store, field.name, indices))
        numbers = store.column(field.name)[indices]
        classes = store.metadata.get("classes")
        if field.name == "label" and classes:
            return [classes[i] if 0 <= i < len(classes) else i for i in numbers.tolist()]
        return plain_numbers(numbers)

    def _cells(self, delimiter: str) -> Iterator[bytes]:
        """The table as text: what is null is empty, what is a list or an object is JSON."""
        style = self.form.get("style") or {}
        words = set(self.form.get("python_booleans") or ())
        titles = list(dict.fromkeys(each["path"][0] for each in self.columns))
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, delimiter=delimiter, lineterminator=style.get("line_end", "\n"))
        if not self.form.get("no_header"):
            writer.writerow(titles)
        for row in self.rows():
            writer.writerow([_cell(row.get(title), is_python=title in words) for title in titles])
            if buffer.tell() > 1 << 20:
                yield buffer.getvalue().encode()
                buffer.seek(0)
                buffer.truncate()
        yield buffer.getvalue().encode()

    def _parquet(self) -> bytes:
        arrow = pyarrow(f"to write {self.name}")
        parquet = pyarrow(f"to write {self.name}", "pyarrow.parquet")
        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.Table.from_pylist(list(self.rows())), sink)
        return bytes(sink.getvalue())


def sound_values(store: SampleStore, name: str, indices: NDArray[np.int64]) -> Spans:
    """Some values of a field. Raises StoreCorrupt if one differs from its checksum."""
    spans = read_values(store, name, indices)
    for i in damaged(spans):
        raise StoreCorrupt(
            f"{store.path}: {store.keys(indices)[i]!r}, field {name!r}: bytes differ from their checksum; "
            "`fastio verify` lists all such samples"
        )
    return spans


def decoded(field: Field, spans: Spans) -> list[Any]:
    """Return values as JSON has them: text, objects, or lists of numbers."""
    traits = field.traits
    data = [view.tobytes() for view in spans.views()]
    if traits.is_text:
        return [each.decode() for each in data]
    if traits.is_json:
        return [parse_json(each) for each in data]
    shape = tuple(-1 if size is None else size for size in field.shape)
    return [plain_numbers(np.frombuffer(each, field.dtype).reshape(shape)) for each in data]


def plain_numbers(numbers: NDArray[Any]) -> list[Any]:
    """Return an array as a list; float32 in the digits that it has, 0.1 and not 0.10000000149011612."""
    if numbers.dtype == np.float32:
        numbers = np.array([float(str(each)) for each in numbers.ravel()], np.float64).reshape(numbers.shape)
    return list(numbers.tolist())


def _put(row: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value at a path, whose objects are made."""
    for name in path[:-1]:
        row = row.setdefault(name, {})
    row[path[-1]] = value


def _cell(value: Any, *, is_python: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value) if is_python else str(value).lower()
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
