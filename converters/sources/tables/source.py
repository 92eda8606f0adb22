"""Makes a source of a table: two passes over its rows, and a look at the files that they name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.problems import list_problems
from fastio.converters.sources.chat_forms import pictures_in
from fastio.converters.sources.column_kinds import holding
from fastio.converters.sources.columns import SourceColumns
from fastio.converters.sources.files import paths_below
from fastio.converters.sources.layouts.roots import left_beside
from fastio.converters.sources.listed import Indices, ListedSource, Read, Values, names_at, read_together
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.pairs import FieldFiles, suggested_field
from fastio.converters.sources.record import root_to_record
from fastio.converters.sources.tables.collect import Collected, collect
from fastio.converters.sources.tables.columns import ColumnGuess, PlannedColumn, TablePlan, label_title, make_plan
from fastio.converters.sources.tables.names import FileStates, Stems, describe_names, file_states
from fastio.converters.sources.tables.rows import TableFile
from fastio.errors import SourceError
from fastio.store.kinds.names import METADATA_NAMES, TABLE_SUFFIXES, is_table_name
from fastio.store.kinds.scan import Folder, Problem, SourcePath, is_hidden, names_in, scan_tree, shown
from fastio.types.picture_kinds import kind_by_name
from fastio.types.schema import Field, Schema
from fastio.types.spans import ListSpans, elements_of, firsts_of, sums_of

__all__ = [
    "names_pictures",
    "open_metadata",
    "open_table",
    "table_source",
]


_LOOKED_AT = 4096  # names of files that tell their type


@dataclass(frozen=True, slots=True)
class _TableParts:
    """
    What makes a table a source: the ``kind`` of source, the table, and the folder ``root`` of the files that it names.

    ``others(names)`` returns problems and files left out because no row names them, and their ``disk_bytes``.
    ``takes_root`` says that the user may name another folder of the files.
    """

    kind: str
    place: SourcePath
    table: TableFile
    root: str
    others: Callable[[Collection[str]], tuple[list[Problem], list[Problem]]]
    takes_root: bool = False


def open_metadata(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a folder of pictures, at any depth, with a table that has a row for each: ``file_name``, and further columns.

    Columns called ``..._file_name`` name further files, ``file_names`` and lists any number of them. Pictures that no
    row names are problems, and so are rows without their file.
    """
    names = _tables(place)
    if len(names) != 1:
        found = " and ".join(names) or "none of them"
        raise SourceError(f"{place.path}: expected one of {', '.join(METADATA_NAMES)}, found {found}")
    table = TableFile(str(Path(place.path, names[0])), has_titles=options.columns.header)
    titles = table.first()
    if titles is not None and not any(each.endswith(("file_name", "file_names")) for each in titles):
        key = options.columns.key_column
        if key is None and all(choice.name != "image" for choice in options.fields):
            raise SourceError(
                f"{table.path}: has no column 'file_name', only {', '.join(map(repr, titles))}: name the "
                "column with the files, as in --key-column path"
            )

    def others(named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
        return _unnamed(place, table.name, named)

    return _open_rows(_TableParts("metadata", place, table, place.path, others), options)


def _unnamed(place: SourcePath, table: str, named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    """Pictures that no row names, and what is neither a picture nor named."""
    found = Folder()
    found.add(place.top)
    for key in place.top.folders:
        found.add(scan_tree(place.path, key))
    ours = {table, *map(shown, named)}
    problems = [Problem(shown(key), f"has no row in {table}") for key in found.keys if key not in named]
    left_out = [each for each in found.left_out if each.key not in ours]
    for each in found.problems:
        if each.key not in ours and each.problem.startswith("is not an image"):
            left_out.append(Problem(each.key, f"is not an image, and has no row in {table}"))
        elif each.key not in ours:
            problems.append(each)
    return problems, left_out


def _tables(place: SourcePath) -> list[str]:
    """The tables of the convention in the folder itself."""
    top = place.top
    return sorted({each.key for each in (*top.problems, *top.left_out)} & set(METADATA_NAMES))


def open_table(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a .csv, .tsv, .jsonl, .json, Parquet or Arrow file. Files are named from ``--root`` on, or from the table's
    folder.

    A sample is named after its file, by ``--key-column``, or by its line. Files that no row names belong to nothing:
    only the table says what the samples are.
    """
    if place.is_folder or not is_table_name(place.path):
        raise SourceError(f"{place.path}: expected a table ({', '.join(TABLE_SUFFIXES)})")
    return table_source("table", place, place.path, options)


def table_source(kind: str, place: SourcePath, path: str, options: SourceOptions) -> ListedSource:
    """Return the source ``place`` of this kind whose samples are the rows of the table ``path``; see ``open_table``."""
    table = TableFile(path, has_titles=options.columns.header)
    root = options.root or os.path.dirname(path) or "."  # noqa: PTH120 - "" for a name alone

    def others(named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
        return [], left_beside(place, os.path.realpath(root), named, [table.path])

    return _open_rows(_TableParts(kind, place, table, root, others, takes_root=True), options)


def _open_rows(parts: _TableParts, options: SourceOptions) -> ListedSource:
    """
    Return the rows of a table, with the files that they name, as samples in the order of the table.

    The first pass finds the columns' types, the second keeps keys, names and numbers in memory, and other values in a
    temporary file. A row with something wrong is a problem, under its key.
    """
    guesses = _guesses(parts.table, options)
    root = os.path.realpath(parts.root)
    plan = make_plan(parts.table.path, guesses, options, _stem_title(parts, options, guesses, root))
    unpacked = _left_out(parts, options, guesses, plan, root)
    if parts.takes_root and options.root is not None and not plan.files:
        raise SourceError(_unused_root(parts.table.path, options.root, guesses))
    classes = _classes(plan, guesses)
    rows = collect(parts.table, plan, root, classes)
    states = {each.name: file_states(root, rows.names[each.name]) for each in plan.files}
    for each in plan.files:
        if parts.takes_root:
            _check_root(parts.table.path, each, root, rows.names[each.name], states[each.name])
        wrong = states[each.name].problems
        if each.is_list:
            is_optional = each.field is not None and each.field.is_optional
            wrong = list_problems(np.array(rows.counts[each.name], np.int64), wrong, is_optional=is_optional)
        for i, sentence in wrong.items():
            rows.bad.setdefault(i, f"has a {each.path[0]!r} that {sentence}")
    _find_repeated(rows)
    fields = {each.name: _file_field(each, root, rows) for each in plan.files}
    fields |= {each.name: each.field for each in plan.values if each.field is not None}
    return _TableSamples(parts, options, guesses, plan, rows, states, fields, unpacked).source(classes)


def _guesses(table: TableFile, options: SourceOptions) -> dict[str, ColumnGuess]:
    """The columns in the order in which they first come, with the types of their values."""
    guesses: dict[str, ColumnGuess] = {}
    label, is_typed, first_problem, count = label_title(options), table.is_typed, "", 0
    for line, row in table.rows():
        if isinstance(row, str):
            first_problem = first_problem or f"line {line} {row}"
            continue
        count += 1
        for title, value in row.items():
            guess = guesses.get(title)
            if guess is None:
                guess = guesses[title] = ColumnGuess(title, is_typed, keeps_texts=title.lower() == label.lower())
            guess.add(value)
    if not guesses:
        raise SourceError(f"{table.path}: holds no rows" + (f"; {first_problem}" if first_problem else ""))
    for guess in guesses.values():
        guess.finish(count)
    return guesses


def _left_out(
    parts: _TableParts, options: SourceOptions, guesses: Mapping[str, ColumnGuess], plan: TablePlan, root: str
) -> list[str]:
    """The columns that are not packed. Raises SourceError for those of them, and of JSON, that hold pictures."""
    files = {each.path[0] for each in plan.files}
    first = [value for title in files for value in guesses[title].first]
    known = {name for value in first for name in (*_parts(value), *pictures_in(value)) if isinstance(name, str)}
    columns = SourceColumns(
        parts.table.path,
        list(guesses),
        lambda title: guesses[title].first,
        plan.without,
        root,
        known,
        takes_files=True,
        decodes=True,
    )
    types = {choice.name: choice.field for choice in options.fields}
    settled = {
        each.path[0]
        for each in plan.columns
        if each.kind
        or (len(each.path) == 1 and (types.get(each.name) or (each.field and each.field.traits.is_picture)))
    }
    settled |= {*files, *plan.filters.values(), plan.key or ""}
    if plan.chat is not None:
        settled |= {*plan.chat.titles}
    return columns.left_out(set(guesses) - set(plan.ignored), set(guesses) if options.as_recorded else settled)


def _unused_root(table: str, root: str, guesses: Mapping[str, ColumnGuess]) -> str:
    """What to say of ``--root`` where no column names files."""
    return (
        f"{table}: --root {shown(root)}: no column names files, of {', '.join(map(repr, guesses)):.500}: drop --root, "
        "or say which does, as in --field image=COLUMN:image"
    )


# Columns that name pictures without their extensions.

_ID_TITLES = ("id", "image_id", "imageid", "id_code", "image", "image_name", "img", "file", "name", "filename", "key")


def _stem_title(parts: _TableParts, options: SourceOptions, guesses: Mapping[str, ColumnGuess], root: str) -> str:
    """
    Return the column whose values are names of pictures below ``root`` without their extensions, "" if none is.

    Where the user has not named the folder of the files, such a column is not taken but refused: a store of names
    alone is not what anybody wants. Raises SourceError also if several columns could be meant.
    """
    if options.as_recorded and options.root is None:
        return ""
    if any(each.names_files or each.lists_files or each.kind is not None for each in guesses.values()):
        return ""
    typed = {
        choice.where for choice in options.fields if choice.field is not None and not choice.field.traits.is_picture
    }
    skipped = {label_title(options).lower(), *typed, *options.columns.ignore_columns}
    columns = [each for title, each in guesses.items() if title not in skipped and title.lower() not in skipped]
    if not parts.takes_root or options.root is None:
        _refuse_names_alone(parts, columns, root)
        return ""
    stems = Stems(root)
    titles = [each.title for each in columns if _are_stems(each, stems)]
    asked = {options.columns.key_column, *(choice.where for choice in options.fields)}
    chosen = [title for title in titles if title in asked]
    chosen = chosen or [title for name in _ID_TITLES for title in titles if title.lower() == name][:1] or titles
    if len(chosen) > 1:
        raise SourceError(
            f"{parts.table.path}: columns {' and '.join(map(repr, chosen[:2]))} both name pictures in {shown(root)} "
            f"without their extensions: say which does, as in --field image={chosen[0]}:image"
        )
    return chosen[0] if chosen else ""


def _are_stems(guess: ColumnGuess, stems: Stems) -> bool:
    """Whether most of a column's first values are names of pictures without their extensions."""
    found = sum(bool(stems.files(str(each))) for each in guess.first if isinstance(each, (str, int)))
    return found > 0 and 2 * found >= len(guess.first)


def _refuse_names_alone(parts: _TableParts, columns: Sequence[ColumnGuess], root: str) -> None:
    """SourceError for a column of such names where their pictures lie in the table's folder or in one in it."""
    likely = [each for each in columns if each.is_text or each.title.lower() in _ID_TITLES]
    if not likely:
        return
    folders = [name for name in names_in(root)[0] if not is_hidden(name)]
    for folder in ["", *folders]:
        place = os.path.normpath(os.path.join(parts.root, folder))  # noqa: PTH118 - as the user wrote it
        stems = Stems(f"{root}/{folder}" if folder else root)
        title = next((each.title for each in likely if _are_stems(each, stems)), None)
        if title is not None:
            raise SourceError(
                f"{parts.table.path}: column {title!r} names pictures in {shown(place)} without their extensions, and "
                f"only these names would be packed: --root {shlex.quote(place)} takes the pictures, --field "
                f"NAME={title}:text the names alone"
            )


def _classes(plan: TablePlan, guesses: Mapping[str, ColumnGuess]) -> list[str] | None:
    """The names of the classes, sorted; None if labels are numbers, or if there are none."""
    label = next((each for each in plan.columns if each.is_label), None)
    return None if label is None else sorted(guesses[label.path[0]].texts)


def _check_root(table: str, column: PlannedColumn, root: str, names: Sequence[str], states: FileStates) -> None:
    """Raise SourceError if none of the files that a column names is in ``root``: they are in another folder."""
    named = [name for name in names if name]
    if named and states.missing == len(named):
        raise SourceError(
            f"{table}: column {column.path[0]!r} names files such as {shown(named[0])!r}, none of which is in "
            f"{shown(root)}: name their folder with --root"
        )


def _find_repeated(rows: Collected) -> None:
    """Mark rows with the same key: which of them is meant, nobody can tell."""
    first: dict[str, int] = {}
    for i, key in enumerate(rows.keys):
        if key and first.setdefault(key, i) != i:
            other = first[key]
            rows.bad.setdefault(i, f"comes twice: in line {rows.lines[other]} as well")
            rows.bad.setdefault(other, f"comes twice: in line {rows.lines[i]} as well")


def _file_field(column: PlannedColumn, root: str, rows: Collected) -> Field:
    """The type of a column of files: as asked for, or as the names and the first files suggest."""
    if column.field is not None:
        return column.field
    is_bad = rows.bad if not column.is_list else ()
    names = [name for i, name in enumerate(rows.names[column.name]) if name and i not in is_bad][:_LOOKED_AT]
    if not names:
        names = [name for name in rows.names[column.name] if name][:1] or ["x.bin"]
    field = suggested_field(column.name, root, names)
    return field.listed() if column.is_list else field


@dataclass(frozen=True, slots=True)
class _TableSamples:
    """Everything that is known of a table and its files."""

    parts: _TableParts
    options: SourceOptions
    guesses: Mapping[str, ColumnGuess]
    plan: TablePlan
    rows: Collected
    states: Mapping[str, FileStates]
    fields: Mapping[str, Field]
    unpacked: Sequence[str]

    def source(self, classes: list[str] | None) -> ListedSource:
        rows, plan, place = self.rows, self.plan, self.parts.place
        schema = Schema(
            tuple(sorted((self.fields[each.name] for each in plan.columns), key=lambda each: each.is_column))
        )
        if not schema.payload:
            raise SourceError(
                f"{self.parts.table.path}: has only numbers ({', '.join(map(str, schema.fields))}): a store holds at "
                "least one field of files, text or arrays, such as --field row=COLUMN:json"
            )
        self._refuse_ids_alone(schema)
        order = np.setdiff1d(np.arange(len(rows.keys)), np.fromiter(rows.bad, np.int64, len(rows.bad)))
        problems, left_out = self._others()
        sizes = self._sizes()
        return ListedSource(
            path=place.path,
            kind=self.parts.kind,
            schema=schema,
            metadata=self._metadata(order, classes),
            keys_at=names_at(rows.keys),
            sizes=sizes,
            read=self._read(),
            disk_bytes=self._disk_bytes(),
            files_opened=1 + sum(len(rows.names[each.name]) if each.is_list else len(order) for each in plan.files),
            columns=rows.columns,
            problems=problems,
            left_out=left_out,
            order=order,
            is_by_name=False,
            paths=self._paths,
            place_at=self._place_at,
        )

    def _refuse_ids_alone(self, schema: Schema) -> None:
        """SourceError for samples that are nothing but ids: the names of pictures that are elsewhere."""
        titles = {each.name: each.path[0] for each in self.plan.columns if len(each.path) == 1}
        title = titles.get(schema.payload[0].name, "")
        asked = {choice.where for choice in self.options.fields}
        is_id = len(schema.payload) == 1 and title.lower() in _ID_TITLES and title not in asked
        if is_id and schema.payload[0].traits.is_text and not self.options.as_recorded:
            first = next(iter(self.guesses[title].first), "")
            raise SourceError(
                f"{self.parts.table.path}: samples would hold {title!r} alone, such as {first!r:.60}: if these name "
                f"pictures, --root FOLDER says where they are; --field NAME={title}:text packs the names"
            )

    def _place_at(self, index: int, name: str) -> str:
        """The line and the column of a picture that stands in the table itself."""
        column = next((each for each in self.plan.columns if each.name == name and each.kind), None)
        if column is None:
            return ""
        return f"{self.parts.table.name}:{self.rows.lines[index]}, column {'.'.join(column.path)!r},"

    def _paths(self) -> Iterator[str]:
        """The table, and the files that it names."""
        yield self.parts.table.path
        for names in self.rows.names.values():
            yield from paths_below(self._root, names)

    def _read(self) -> Read:
        reads: list[Read] = []
        for each in self.plan.columns:
            if each.is_file:
                field, names = self.fields[each.name], names_at(self.rows.names[each.name])
                files = FieldFiles(field.element, self._root, names, self.states[each.name].sizes)
                counts = np.array(self.rows.counts.get(each.name, ()), np.int64)
                reads.append(_FileLists(field, files, firsts_of(counts)).begin if each.is_list else files.begin)
            elif each.name in self.rows.spools:
                reads.append(self.rows.spools[each.name].begin)
        return read_together(reads)

    @property
    def _root(self) -> str:
        return os.path.realpath(self.parts.root)

    def _sizes(self) -> NDArray[np.int64]:
        """The bytes of each sample, all payload fields together."""
        total = np.zeros(len(self.rows.keys), np.int64)
        for name, state in self.states.items():
            counts = self.rows.counts.get(name)
            total += state.sizes if counts is None else sums_of(firsts_of(np.array(counts, np.int64)), state.sizes)
        for spool in self.rows.spools.values():
            total += spool.sizes
        return total

    def _disk_bytes(self) -> int:
        blocks = Path(self.parts.table.path).stat().st_blocks * 512
        return blocks + sum(each.disk_bytes for each in self.states.values())

    def _others(self) -> tuple[list[Problem], list[Problem]]:
        """Bad rows, and files that no row names."""
        rows, name = self.rows, self.parts.table.name
        problems = [
            Problem(shown(rows.keys[i] or f"{name}:{rows.lines[i]}"), f"{sentence} ({name}:{rows.lines[i]})")
            for i, sentence in rows.bad.items()
        ]
        named = set[str]().union(*rows.names.values(), rows.left_out_names)
        unnamed, left_out = self.parts.others(named)
        return [*rows.problems, *problems, *unnamed], [*rows.left_out, *left_out]

    def _metadata(self, order: Indices, classes: list[str] | None) -> dict[str, Any]:
        options, place = self.options, self.parts.place
        label_options = options.columns.to_json()
        record = source_record(
            self.parts.kind, place.name, labels=None, label_options=label_options, left_out=self.unpacked
        )
        if options.fields:
            record["fields"] = list(map(str, options.fields))
        if decoded := {each.name: each.kind.name for each in self.plan.columns if each.kind}:
            record["decoded"] = decoded
        if self.plan.chat is not None:
            record |= {"chat": options.chat, **self.plan.chat.to_json()}
        if options.root is not None:
            record["root"] = root_to_record(options.root, place.path)
        indices = order.tolist()
        keys = [self.rows.keys[i] for i in indices]
        files = {
            each.name: describe_names(keys, [self.rows.names[each.name][i] for i in indices])
            for each in self.plan.files
            if each.path[0] != self.plan.key and not each.is_list
        }
        return {
            "classes": classes,
            "source": record,
            **({"files": files} if files else {}),
            "table": {"name": self.parts.table.name, **self._table_form()},
        }

    def _table_form(self) -> dict[str, Any]:
        """What writes the same table again: its columns in their order, and how it was written."""
        plan, table = self.plan, self.parts.table
        by_title = {each.path[0]: each for each in plan.columns if len(each.path) == 1}
        columns: list[dict[str, Any]] = []
        for title, guess in self.guesses.items():
            column = by_title.get(title)
            if title == plan.key and (column is None or column.is_file):
                key = {"path": [title], "key": "text" if column is not None and not column.is_stem else guess.type()}
                columns.append({**key, "stem": True} if column is not None and column.is_stem else key)
            elif column is not None:
                kind: dict[str, Any] = {"kind": column.kind.name} if column.kind else {}
                kind |= {"stem": True} if column.is_stem else {}
                place = "files" if column.is_list else "file" if column.is_file else "field"
                columns.append({"path": [title], place: column.name, **kind})
            else:
                columns += [
                    {"path": list(each.path), "field": each.name, **({"kind": each.kind.name} if each.kind else {})}
                    for each in plan.columns
                    if each.path[0] == title
                ]
        guesses = self.guesses.items()
        absent = [title for title, guess in guesses if guess.missing and not guess.nulls]
        words = [title for title, guess in guesses if guess.words & {"True", "False"}]
        form = {
            "columns": columns,
            "left_out": plan.ignored,
            "absent": absent,
            "python_booleans": words,
            "no_header": not table.has_titles,
            "style": table.style(),
        }
        return {name: value for name, value in form.items() if value}


# Whether a table is more than text.

_LONGEST_NAME = 1024  # characters; what is longer is a text that ends with the name of a picture


def names_pictures(path: str) -> bool:
    """
    Return whether the first row of a table names a picture, under "file_name" or anywhere, or holds one as text.

    Where there is a "text", a picture under another title must lie beside the table. Columns of Parquet and Arrow
    files have types, so that their texts are fields without further signs.
    """
    table = TableFile(path)
    row = table.first() or {}
    files = [*_parts(row.get("file_name")), *_parts(row.get("file_names"))]
    values = [] if table.has_columns else row.values()
    parts = [part for value in values for part in (*_parts(value), *pictures_in(value))]
    if any(map(_names_picture, files)) or any(map(holding, parts)):
        return True
    names = list(filter(_names_picture, parts))
    if "text" in row:
        folder = os.path.dirname(path)  # noqa: PTH120 - "" for a name alone
        return any(os.path.isfile(os.path.join(folder, name)) for name in names)  # noqa: PTH113, PTH118 - never raises
    return bool(names)


def _parts(value: object) -> list[object]:
    """A value, or those of a list."""
    return value if isinstance(value, list) else [value]


def _names_picture(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return False
    return "\n" not in value and "://" not in value and kind_by_name(value) != 0


@dataclass(frozen=True, slots=True)
class _FileLists:
    """
    Lists of files as the values of ``field``: ``files`` are those of all rows, of which row i has those from
    ``firsts[i]`` up to ``firsts[i + 1]``.
    """

    field: Field
    files: FieldFiles
    firsts: NDArray[np.int64]

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read the files of some rows; see ``ListedSource.read``. A bad one is a problem of its row."""
        elements, counts = elements_of(self.firsts, indices)
        wait = self.files.begin(elements, pool)

        def finish() -> Values:
            values = wait()
            wrong = list_problems(counts, values.problems, is_optional=self.field.is_optional)
            name = self.field.name
            problems = {i: f"has a field {name!r} that {words}" for i, words in wrong.items()}
            return Values({}, problems, lists={name: ListSpans(values.spans[name], counts)})

        return finish
