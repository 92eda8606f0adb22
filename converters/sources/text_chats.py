"""ChatTable: the chat of each row of a table, as the JSON of its parts."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from fastio.converters.fields.types import NamedTwiceError
from fastio.converters.sources.arrow.columns import columns_of
from fastio.converters.sources.arrow.reading import OpenTable, plain_array, python_values, reading, sound
from fastio.converters.sources.chat_forms import (
    IMAGE_MARK,
    OPTIONAL_PARTS,
    ChatColumns,
    ChatError,
    chat_columns,
    document_of,
)
from fastio.converters.sources.columns import SourceColumns
from fastio.converters.sources.documents import Documents, Gathering, Limits
from fastio.converters.sources.options import source_record
from fastio.converters.sources.tables.rows import TableFile, value_in
from fastio.converters.sources.text_table import FIRST_ROWS, OtherColumns, TextTable, listed, slices
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name

__all__ = ["ChatTable", "chats_of"]

_LOG = logging.getLogger(__name__)


def chats_of(source: TextTable) -> ChatTable:
    """
    Return the chats of a table that was opened with the option ``chat``, by the first rows of its first file.

    Raises SourceError if its column is missing, or if no row has a chat there.
    """
    options, path, first = source.options, source.path, source.first_file
    column = options.chat or ""
    rows = replace(first, limit=options.max_document_bytes).rows()
    good = [row for _, row in islice(rows, FIRST_ROWS) if not isinstance(row, str)]
    names = list(dict.fromkeys(name for row in good for name in row))
    chat = chat_columns(path, column, names, options.without, lambda where: (_value(row, where) for row in good))
    used = frozenset(chat.titles)
    if first.has_columns:
        with reading(first.kind, first.path, []) as file:
            schema = file.schema
        columns = columns_of(first.kind, dict.fromkeys(schema.names, first.path), schema, options.without)
        others = OtherColumns(columns, used, columns.left_out(used, used))
    else:
        others = OtherColumns(SourceColumns(path, (), lambda _: (), options.without, root=source.files.folder), used)
        for row in good:
            others.see(row)
    where = next(iter(chat.parts.values()))
    return ChatTable(source.kind, source.place, source.files, options, where, None, None, others, chat=chat)


def _value(row: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    try:
        return value_in(row, path)
    except (KeyError, ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class ChatTable(TextTable):
    """
    The chats in the rows of one or several files. Satisfies ``TextSource``: a document is the JSON of a row's chat, for
    ``chat_of`` or ``preference_of``.
    """

    chat: ChatColumns = field(default_factory=lambda: ChatColumns("", {}))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Which column was used, and how it keeps chats."""
        fields = {
            "chat": self.options.chat,
            "form": self.chat.form,
            "max_document_bytes": self.options.max_document_bytes,
            "left_out": list(self.others.names),
        }
        return {"classes": None, "source": source_record(self.kind, plain_name(self.place.name), **fields)}

    def _look_for_pictures(self, key: str, row: Mapping[str, Any]) -> None:
        """
        Raise SourceError for a chat with a place for a picture, if a column that is not packed names one. If the user
        leaves all of these out, the place stays text, and one line says so.
        """
        columns = self.others.naming_pictures(row)
        unsaid = next((name for name in columns if name not in self.options.without), None)
        if unsaid is not None:
            raise SourceError(
                f"{self.path}: {key} has {IMAGE_MARK} in its turns, and pictures are named in the column {unsaid!r}, "
                "which would be left out: --root FOLDER packs those of a folder, --without "
                f"{shlex.quote(unsaid)} the text as it is"
            )
        if columns and not self.others.is_told:
            self.others.is_told = True
            _LOG.warning(
                "%s: chats keep %s in their text, such as %s, without the pictures of the column %r",
                self.path,
                IMAGE_MARK,
                key,
                columns[0],
            )

    def _document(self, key: str, row: Mapping[str, Any], *, has_bytes: bool) -> bytes | str:
        """The JSON of a row's chat, or a sentence on why there is none."""
        values: dict[str, tuple[str, Any]] = {}
        for part, path in self.chat.parts.items():
            where = ".".join(path)
            if path[0] not in row:
                if part in OPTIONAL_PARTS:
                    continue
                there = f"only {listed(list(row))}" if row else "as it is empty"
                return f"has no field {where!r}, {there}: --chat names another"
            try:
                values[part] = where, value_in(row, path)
            except NamedTwiceError as exc:
                return str(exc)
            except (KeyError, ValueError, RecursionError):
                return f"has no field {where!r}: there is {row[path[0]]!r:.60}"
        try:
            document = document_of(self.chat.form, values)
        except ChatError as exc:
            return str(exc)
        except UnicodeEncodeError:
            return "is not UTF-8; convert it" if has_bytes else "has half of a character (a lone surrogate)"
        if IMAGE_MARK.encode() in document:
            self._look_for_pictures(key, row)
        return document

    def _read_columns(
        self, table: TableFile, key: str, limits: Limits, positions: dict[str, int]
    ) -> Iterator[Documents]:
        """The documents of a file that keeps columns."""
        number = 0
        names = self.chat.titles
        with reading(table.kind, table.path, names) as file:
            self._see(table, file.schema)
            gathering = Gathering(limits, _Columns(file), key)
            for part in (part for batch in file.batches for part in slices(batch, limits)):
                try:
                    columns = [python_values(plain_array(sound(part, name))) for name in names]
                except UnicodeDecodeError as exc:  # within lists and structs, where Arrow decodes text itself
                    raise SourceError(f"{table.path}: from row {number + 1} on: not UTF-8: {exc.reason}") from exc
                for values in zip(*columns, strict=True):
                    number += 1
                    row = dict(zip(names, values, strict=True))
                    self._add(gathering, positions, f"{key}:{number}", row, has_bytes=True)
                    if gathering.is_full:
                        yield gathering.take()
            yield gathering.take()

    def _see(self, table: TableFile, schema: Any) -> None:
        """Check the columns of a file, and take those that the first one lacks."""
        self._see_others(table, schema)
        for title in self.chat.titles:
            if schema.names.count(title) != 1:
                raise SourceError(
                    f"{table.path}: has {schema.names.count(title)} columns named {title!r}, expected one, as in "
                    "the first file"
                )


@dataclass(frozen=True, slots=True)
class _Columns:
    """How far a file of columns has been read, for ``Gathering``: it has no lines."""

    file: OpenTable

    @property
    def position(self) -> int:
        return self.file.position()

    def take_blank_lines(self) -> Sequence[int]:
        return ()
