"""The files that a store's fields came from, written again: tables, COCO's JSON, values as files, text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import image_kind
from fastio.codec.copied import parse_json, pixels_of
from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.record import origin_of, recorded_kind
from fastio.converters.sources.source import damaged
from fastio.converters.text.decode import Document, StoredText, probe_words
from fastio.errors import StoreCorrupt
from fastio.store import SampleStore
from fastio.store.kinds.names import ARROW_SUFFIXES
from fastio.store.protocol import located, read_values
from fastio.types.bfloat16 import widened
from fastio.types.field_types import type_of
from fastio.types.picture_kinds import PICTURE_KINDS, kind_by_name
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "FieldAsFiles",
    "StoredCoco",
    "StoredTable",
    "text_files",
    "text_notes",
]


_ROWS = 512
_LISTS_TABLE = "metadata.jsonl"  # as Hugging Face's ImageFolder has it
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, slots=True)
class StoredTable:
    """
    How a table becomes rows again, from a store's ``metadata["table"]``: its ``name``, and its ``columns`` in order.

    Each column has a ``path`` (its title, and names below it if only a part of its JSON was packed), and what its value
    is: a ``field``, the name of a ``file``, the ``key`` of the sample, or the names of the ``files`` of a field, which
    are those that ``unpack`` writes.
    """

    store: SampleStore
    name: str
    columns: Sequence[Mapping[str, Any]]
    form: Mapping[str, Any]

    @classmethod
    def of(cls, store: SampleStore) -> StoredTable | None:
        """
        Return the table of a store, None if it was not packed from one. A store with lists always has one, since files
        alone do not tell how long lists are. Raises StoreCorrupt for a malformed one.
        """
        form = store.metadata.get("table")
        if form is None:
            return cls(store, _LISTS_TABLE, _columns_of(store.schema), {}) if store.schema.lists else None
        from fastio.converters.sources.column_kinds import COLUMN_KINDS

        try:
            columns = form["columns"]
            is_sound = all(each["path"] and ("key" in each or _field_of(each) in store.schema) for each in columns)
            is_sound = is_sound and {each["kind"] for each in columns if "kind" in each} <= COLUMN_KINDS.keys()
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
        return {str(_field_of(each)) for each in self.columns}

    @property
    def options(self) -> list[str]:
        """
        The options by which ``fastio pack`` makes the same samples of this table and its files; none for the table of a
        source, which was packed by its own.
        """
        if "table" in self.store.metadata:
            return []
        options = []
        for each in self.columns:
            title = each["path"][0]
            if "key" in each:
                options += ["--key-column", title]
            else:
                field = self.store.schema[str(_field_of(each))]
                is_label = field.name == "label" and bool(self.store.metadata.get("classes"))
                options += [] if is_label else ["--field", f"{field.name}={title}:{type_of(field)}"]
        return options

    def parts(self, names: Mapping[str, Sequence[str]]) -> Iterator[bytes]:
        """Yield the bytes of the file, in parts; ``names`` has those of the files of each field, in order."""
        suffix = PurePath(self.file_name).suffix.lower()
        if suffix in _DELIMITERS:
            yield from self._cells(_DELIMITERS[suffix], names)
        elif suffix == ".parquet":
            yield self._parquet(names)
        elif suffix in ARROW_SUFFIXES:
            yield self._arrow(names)
        elif suffix == ".json":
            rows = (json.dumps(row, ensure_ascii=False).encode() for row in self.rows(names))
            yield b"[" + next(rows, b"")
            yield from (b",\n" + row for row in rows)
            yield b"]\n"
        else:
            style = {"ensure_ascii": False, **(self.form.get("style") or {})}
            for row in self.rows(names):
                yield json.dumps(row, **style).encode() + b"\n"

    @property
    def file_name(self) -> str:
        """The name of the file: that of the source, without the suffix of a compression."""
        path = PurePath(self.name)
        return path.stem if path.suffix.lower() in (".gz", ".zst") else self.name

    def rows(self, names: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Yield the rows, in the order of the samples; see ``parts``."""
        absent = set(self.form.get("absent") or ())
        for start in range(0, len(self.store), _ROWS):
            indices = np.arange(start, min(start + _ROWS, len(self.store)))
            values = [self._values(each, indices, names) for each in self.columns]
            for i in range(len(indices)):
                row: dict[str, Any] = {}
                for each, column in zip(self.columns, values, strict=True):
                    _put(row, each["path"], column[i])
                yield {title: value for title, value in row.items() if value is not None or title not in absent}

    def _values(
        self, column: Mapping[str, Any], indices: NDArray[np.int64], names: Mapping[str, Sequence[str]]
    ) -> list[Any]:
        from fastio.converters.sources.column_kinds import COLUMN_KINDS
        from fastio.converters.sources.tables.names import file_name

        store = self.store
        if "key" in column:
            keys = _without_extensions(store.keys(indices), column)
            return [int(key) for key in keys] if column["key"] == "int" else keys
        if "file" in column:
            described = (store.metadata.get("files") or {}).get(column["file"])
            own = [key if described is None else file_name(described, key) for key in store.keys(indices)]
            return _without_extensions(own, column)
        if "files" in column:
            _, which, counts = located(store, column["files"], indices)
            own = [names[column["files"]][i] for i in which.tolist()]
            return own if counts is None else store.elements(column["files"]).grouped(own, counts)
        field = store.schema[column["field"]]
        if "kind" in column:
            kind, files = COLUMN_KINDS[column["kind"]], FieldAsFiles(field, is_first=False)
            values, which, counts = located(store, field.name, indices)
            texts = [
                kind.encode(files.content(view).tobytes()) for view in sound_values(values, field.name, which).views()
            ]
            return texts if counts is None else store.elements(field.name).grouped(texts, counts)
        if not field.is_column:
            values, which, counts = located(store, field.name, indices)
            found = decoded(field.element, sound_values(values, field.name, which))
            return found if counts is None else store.elements(field.name).grouped(found, counts)
        numbers = store.column(field.name)[indices]
        classes = store.metadata.get("classes")
        if field.name == "label" and classes:
            return [classes[i] if 0 <= i < len(classes) else i for i in numbers.tolist()]
        return plain_numbers(numbers)

    def _cells(self, delimiter: str, names: Mapping[str, Sequence[str]]) -> Iterator[bytes]:
        """The table as text: what is null is empty, what is a list or an object is JSON."""
        style = self.form.get("style") or {}
        words = set(self.form.get("python_booleans") or ())
        titles = list(dict.fromkeys(each["path"][0] for each in self.columns))
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, delimiter=delimiter, lineterminator=style.get("line_end", "\n"))
        if not self.form.get("no_header"):
            writer.writerow(titles)
        for row in self.rows(names):
            writer.writerow([_cell(row.get(title), is_python=title in words) for title in titles])
            if buffer.tell() > 1 << 20:
                yield buffer.getvalue().encode()
                buffer.seek(0)
                buffer.truncate()
        yield buffer.getvalue().encode()

    def _arrow(self, names: Mapping[str, Sequence[str]]) -> bytes:
        arrow = pyarrow(f"to write {self.name}")
        table, sink = arrow.Table.from_pylist(list(self.rows(names))), arrow.BufferOutputStream()
        with arrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def _parquet(self, names: Mapping[str, Sequence[str]]) -> bytes:
        arrow = pyarrow(f"to write {self.name}")
        parquet = pyarrow(f"to write {self.name}", "pyarrow.parquet")
        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.Table.from_pylist(list(self.rows(names))), sink)
        return bytes(sink.getvalue())


def _field_of(column: Mapping[str, Any]) -> Any:
    """The field that a column was packed into, as its value, the name of its file, or the names of its files."""
    return column.get("field") or column.get("file") or column.get("files")


def _columns_of(schema: Schema) -> list[dict[str, Any]]:
    """
    The columns of a table for samples that came from none: it holds texts, JSON, token ids and numbers themselves, and
    the names of the files of pictures, arrays and other bytes.
    """
    columns: list[dict[str, Any]] = [{"path": ["_key" if "key" in schema else "key"], "key": "text"}]
    for field in schema.fields:
        traits = field.element.traits
        if traits.is_column or traits.is_text or traits.is_json or traits.is_tokens:
            columns.append({"path": [field.name], "field": field.name})
        else:
            title = f"{field.name}_file_name{'s' if field.is_list and not field.is_optional else ''}"
            columns.append({"path": [f"_{title}" if title in schema else title], "files": field.name})
    return columns


def _without_extensions(names: Sequence[str], column: Mapping[str, Any]) -> list[str]:
    """Names of files as their column has them, which is without extensions if it holds stems."""
    return [name.rpartition(".")[0] or name for name in names] if column.get("stem") else list(names)


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
    return [plain_numbers(widened(np.frombuffer(each, field.dtype).reshape(shape))) for each in data]


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


# The COCO JSON that a store's fields came from, written again from them.

_SAMPLES_AT_ONCE = 512
_FIELDS = ("boxes", "classes", "annotation_ids", "keypoints", "visibility", "captions", "objects", "image_info")


@dataclass(frozen=True, slots=True)
class StoredCoco:
    """How samples become COCO's images and annotations again, from a store's ``metadata["coco"]``."""

    store: SampleStore
    form: Mapping[str, Any]

    @classmethod
    def of(cls, store: SampleStore) -> StoredCoco | None:
        """Return the annotations of a store, None if it does not come from any. Raises StoreCorrupt for bad ones."""
        form = store.metadata.get("coco")
        if form is None:
            return None
        needed = {"annotation_ids", "image_info", "image_id"} - {field.name for field in store.schema.fields}
        is_sound = (
            isinstance(form, Mapping)
            and isinstance(form.get("others"), Mapping)
            and isinstance(form.get("order"), list)
        )
        if not is_sound or needed or PurePath(str(form.get("name"))).name != form.get("name"):
            raise StoreCorrupt(f"{store.path}: its COCO annotations are not described in fastio's form")
        return cls(store, form)

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return str(self.form["name"])

    @property
    def fields(self) -> set[str]:
        """The payload fields that the file holds."""
        return {field.name for field in self.store.schema.payload if field.name in _FIELDS}

    @property
    def written_fields(self) -> set[str]:
        """All fields of which the file says something."""
        return {*self.fields, "image_id", "image"}

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the file, in parts. Annotations that came sorted by id are all sorted in memory."""
        for number, name in enumerate(self.form["order"]):
            yield (b"{" if number == 0 else b", ") + json.dumps(name).encode() + b": "
            if name == "images":
                yield from _list(_text(image) for image, _ in self._samples())
            elif name == "annotations":
                yield from _list(self._annotations())
            else:
                yield _text(self.form["others"].get(name))
        yield b"}"

    def _annotations(self) -> Iterator[bytes]:
        entries = (each for _, annotations in self._samples(with_annotations=True) for each in annotations)
        if not self.form.get("is_by_id"):
            yield from map(_text, entries)
            return
        yield from (text for _, text in sorted((each["id"], _text(each)) for each in entries))

    def _samples(self, *, with_annotations: bool = False) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Each image with its annotations, in the order of the samples."""
        names = self.fields if with_annotations else {"image_info"}
        for start in range(0, len(self.store), _SAMPLES_AT_ONCE):
            indices = np.arange(start, min(start + _SAMPLES_AT_ONCE, len(self.store)))
            values = {name: decoded(self.store.schema[name], sound_values(self.store, name, indices)) for name in names}
            ids, keys = self.store.column("image_id")[indices].tolist(), self.store.keys(indices)
            for i, (number, key) in enumerate(zip(ids, keys, strict=True)):
                sample = {name: value[i] for name, value in values.items()}
                image = {"id": number, "file_name": key, **sample["image_info"]}
                if "coco_url" in image and "file_name" not in (self.form.get("image_order") or ("file_name",)):
                    del image["file_name"]  # LVIS has the address alone
                found = self._objects(number, sample) if with_annotations else []
                yield _ordered(image, self.form.get("image_order")), found

    def _objects(self, image_id: int, sample: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The annotations of an image."""
        categories = self.form["others"].get("categories") or []
        entries = []
        for i, number in enumerate(sample["annotation_ids"]):
            entry: dict[str, Any] = {"id": number, "image_id": image_id}
            if "classes" in sample:
                entry["category_id"] = categories[sample["classes"][i]]["id"]
            if "boxes" in sample:
                entry["bbox"] = list(map(_short, sample["boxes"][i]))
            if "keypoints" in sample:
                points = zip(sample["keypoints"][i], sample["visibility"][i], strict=True)
                entry["keypoints"] = [_short(each) for (x, y), seen in points for each in (x, y, seen)]
            if "captions" in sample and sample["captions"][i] is not None:
                entry["caption"] = sample["captions"][i]
            entry |= sample["objects"][i] if "objects" in sample else {}
            entries.append(_ordered(entry, self.form.get("annotation_order")))
        return entries


def _short(number: float) -> float:
    """A whole number without its fraction, as COCO mostly has it; both are the same number."""
    return int(number) if float(number).is_integer() else number


def _ordered(entry: dict[str, Any], order: Any) -> dict[str, Any]:
    names = [name for name in order if name in entry] if isinstance(order, list) else []
    return {name: entry[name] for name in (*names, *(each for each in entry if each not in names))}


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _list(entries: Iterator[bytes]) -> Iterator[bytes]:
    yield b"[" + next(entries, b"")
    for entry in entries:
        yield b", " + entry
    yield b"]"


# The file that one value of a field becomes when a store is unpacked: its name and its bytes.

_Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FieldAsFiles:
    """
    How the values of one payload field become files.

    ``described`` is the field's entry in ``metadata["files"]`` (see ``file_names``), None if it has none: the files of
    the first field are then called like the samples, those of others have the field's name and an extension behind,
    and elements of lists their numbers before it.
    """

    field: Field
    is_first: bool
    described: Mapping[str, Any] | None = None

    def name(self, key: str, data: _Bytes, number: int = 0) -> str:
        """Return the name of the file for the sample ``key``; ``number`` counts the elements of its list."""
        if self.described is not None:
            from fastio.converters.sources.tables.names import file_name

            return file_name(self.described, key)
        field, is_first = self.field.element, self.is_first and not self.field.is_list
        name = key if is_first else f"{key}.{field.name}"
        if self.field.is_list and not self.field.is_optional:
            name = f"{name}.{number}"
        if field.is_raw_picture:
            return name if name.lower().endswith(".png") else f"{name}.png"
        if field.traits.is_picture:
            return name if is_first and kind_by_name(key) else name + PICTURE_KINDS[image_kind(data)].suffix
        return name if is_first or not field.traits.extension else f"{name}.{field.traits.extension}"

    def content(self, data: _Bytes) -> _Bytes:
        """Return the bytes of the file: raw pictures as PNG, other arrays as .npy, anything else as stored."""
        field = self.field.element
        if field.is_raw_picture:
            from fastio.codec.image import ImageCodec

            return np.frombuffer(ImageCodec().encode(pixels_of(field, data)), np.uint8)
        is_as_stored = self.is_first and self.described is None and not self.field.is_list
        if field.traits.extension != "npy" or field.traits.is_npy or is_as_stored:
            return data
        shape = tuple(-1 if size is None else size for size in field.shape)
        if 0 in shape and -1 in shape:  # rows without elements: how many there were, no byte tells
            shape = tuple(max(size, 0) for size in shape)
        file = io.BytesIO()
        np.save(file, data.view(field.dtype).reshape(shape), allow_pickle=False)
        return np.frombuffer(file.getvalue(), np.uint8)


# Unpacks the text of a store: its tree of files, its single file, or a table.

Parts = Iterator[tuple[str, bytes]]  # name of a file, the next bytes of it
_Progress = Callable[[int, int], object] | None


def text_files(stored: StoredText, progress: _Progress = None, *, numbers: NDArray[np.int64] | None = None) -> Parts:
    """
    Yield the files of a store of text, piece by piece: all pieces of one come before the next.

    Packed from a folder, every document comes under its key. Packed from one .txt, that file comes. Packed from a
    table, or merged from several .txt, its documents come as .jsonl, with key, text (or tokens, if nobody knows their
    text) and label. ``numbers`` is the number of each sample's document if some were left out.
    """
    origin = origin_of(stored.store.metadata)
    documents = _counted(stored, progress)
    unpacks_to = _unpacks_to(origin)
    if unpacks_to == "files":
        yield from ((each.key, _bytes(each)) for each in documents)
    elif unpacks_to == "file" and not {"shuffle", "merged"} & stored.store.metadata.keys():
        yield from _one_file(stored, origin, documents, numbers)
    else:
        yield from _table(stored, _plain_stem(str(origin.get("name") or "")), documents)


def text_notes(stored: StoredText) -> list[str]:
    """Return what differs from what was packed, one sentence each; nothing if all bytes are the same."""
    notes, metadata = [], stored.store.metadata
    options, origin = stored.options, origin_of(stored.store.metadata)
    probed = options.get("decoded") or {}
    if stored.tokenizer is not None and probed.get("exact", 0) < probed.get("documents", 0):
        documents = options.get("documents", probed["documents"])
        words = probe_words(probed.get("exact", 0), probed["documents"], documents)
        notes.append(f"the tokenizer changes text: when it was packed, {words}")
    cut = options.get("cut") or {}
    if cut.get("documents"):
        notes.append(f"{cut['documents']:,} documents were truncated when they were packed: {cut['tokens']:,} tokens")
    if metadata.get("skipped"):
        notes.append(f"{len(metadata['skipped']):,} documents were skipped when it was packed: `fastio info --skipped`")
    between = origin.get("between")
    if between is not None and not between.get("whole"):
        notes.append("what was between documents is not known everywhere, so the usual separator was written")
    if _unpacks_to(origin) == "table":
        notes.append("texts and labels of a table, not the table itself")
    elif _unpacks_to(origin) == "file" and metadata.get("merged"):
        notes.append("a row for each text, not the files that were packed: the sets of several were merged")
    return notes


def _unpacks_to(origin: Mapping[str, Any]) -> str:
    from fastio.store.kinds.registry import SOURCES

    kind = SOURCES.get(recorded_kind(origin))
    return "table" if kind is None else kind.unpacks_to


def _counted(stored: StoredText, progress: _Progress) -> Iterator[Document]:
    done = 0
    for each in stored.documents():
        yield each
        if progress is not None:
            progress(each.sample + 1 - done, 0)
            done = each.sample + 1


def _bytes(document: Document) -> bytes:
    """The text of a document; ids as numbers where nobody knows it."""
    if document.text is not None:
        return document.text
    assert document.ids is not None
    return " ".join(map(str, document.ids.tolist())).encode()


def _one_file(
    stored: StoredText, origin: Mapping[str, Any], documents: Iterator[Document], numbers: NDArray[np.int64] | None
) -> Parts:
    from fastio.converters.sources.text_lines import Separators

    name = PurePosixPath(str(origin.get("name") or "text.txt")).name
    try:
        between = Separators.from_json(origin["between"])
    except (KeyError, TypeError) as exc:
        raise StoreCorrupt(f"{stored.store.path}: does not say what was between its documents: pack again") from exc
    odd, usual = between.after(), (between.usual or "").encode()
    yield name, between.head.encode()
    for position, each in enumerate(documents):
        number = position if numbers is None else int(numbers[each.sample])
        yield name, _bytes(each) + (odd[number].encode() if number in odd else usual)


def _plain_stem(name: str) -> str:
    """The name of a source without what only a pattern has, such as part-*.jsonl; "samples" if nothing is left."""
    return re.sub(r"\[.*?\]|[*?]", "", Path(name).stem).strip("-_.") or "samples"


def _table(stored: StoredText, stem: str, documents: Iterator[Document]) -> Parts:
    name = f"{stem}.jsonl"
    labels = stored.store.column("label") if "label" in stored.store.schema else None
    classes = stored.store.metadata.get("classes")
    for each in documents:
        row: dict[str, Any] = {"key": each.key}
        if each.text is not None:
            row["text"] = each.text.decode("utf-8", "surrogateescape")
        else:
            assert each.ids is not None
            row["tokens"] = each.ids.tolist()
        if labels is not None:
            label = labels[each.sample].tolist()
            row["label"] = classes[label] if classes and 0 <= label < len(classes) else label
        yield name, json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
