"""Collects what rows say, by plan: keys, names of files, columns, and values in a spool."""

from __future__ import annotations

import math
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.problems import list_problems
from fastio.converters.fields.types import NamedTwiceError, PathCheck, value_at
from fastio.converters.fields.values import EncodedField, encode_values
from fastio.converters.sources.column_kinds.kind import ColumnKind, decoded, decoded_elements
from fastio.converters.sources.listed import Indices, Values
from fastio.converters.sources.tables.columns import PlannedColumn, TablePlan
from fastio.converters.sources.tables.names import Stems, safe_name
from fastio.converters.sources.tables.rows import Constant, TableFile, document_in, json_of
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, shown
from fastio.types.field_types import type_of
from fastio.types.schema import Field, is_plain_path
from fastio.types.spans import ListSpans, Spans, elements_of, firsts_of, sums_of

__all__ = [
    "Collected",
    "SpooledValues",
    "ValueSpool",
    "collect",
]


_ROWS = 1024  # encoded at once


@dataclass(slots=True)
class Collected:
    """
    The rows of a table that pass the filters, as arrays and lists with one entry each.

    ``keys`` are "" where a row has none, ``lines`` say where rows begin. ``names`` are paths by column of files, ""
    where there is none; of lists of files, those of all rows, of which row i has ``counts[i]``; ``columns`` and
    ``spools`` hold the values by field. ``bad`` says what is wrong with a row, by position; ``problems`` and
    ``left_out`` are about lines that are no rows, and rows that do not pass the filters.
    """

    keys: list[str] = field(default_factory=list)
    lines: array[int] = field(default_factory=lambda: array("q"))
    names: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, array[int]] = field(default_factory=dict)
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    spools: dict[str, SpooledValues] = field(default_factory=dict)
    bad: dict[int, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)
    left_out_names: set[str] = field(default_factory=set)


def collect(table: TableFile, plan: TablePlan, root: str, classes: Sequence[str] | None) -> Collected:
    """
    Read all rows of a table and keep what ``plan`` asks for; names of files are paths below ``root``.

    Memory: the keys and names, eight bytes a number, and 16 bytes for each other value.
    """
    return _Collector(table, plan, root, classes).collected()


class _Collector:
    def __init__(self, table: TableFile, plan: TablePlan, root: str, classes: Sequence[str] | None) -> None:
        self._table, self._plan, self._root, self._stems = table, plan, root, Stems(root)
        counts = {each.name: array("q") for each in plan.files if each.is_list}
        self._result = Collected(names={each.name: [] for each in plan.files}, counts=counts)
        self._paths = {each.name: PathCheck(each.path[0], each.path[1:]) for each in plan.values if len(each.path) > 1}
        self._convert = {
            each.name: _converter(each, table, classes, self._paths.get(each.name)) for each in plan.values
        }
        self._fields = {each.name: _field_of(each) for each in plan.values}
        self._words = {each.name: ".".join(each.path) for each in plan.values}
        self._spools = {
            name: ValueSpool(name, has_lists=of.is_list) for name, of in self._fields.items() if not of.is_column
        }
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name, of in self._fields.items() if of.is_column}
        self._waiting: dict[str, list[Any]] = {name: [] for name in self._fields}
        self._first = 0  # position of the first row that waits

    def collected(self) -> Collected:
        """Read everything."""
        try:
            return self._collected()
        finally:
            for spool in self._spools.values():
                spool.close()

    def _collected(self) -> Collected:
        result, passes = self._result, self._passes()
        for line, row in self._table.rows():
            if isinstance(row, str):
                result.problems.append(Problem(f"{self._table.name}:{line}", row))
            elif not next(passes):
                self._leave_out(line, row)
            else:
                self._add(line, row)
                if len(result.keys) - self._first >= _ROWS:
                    self._encode()
        self._encode()
        for name, check in self._paths.items():
            if check.missing:
                raise SourceError(
                    f"{self._table.path}: --field {name}={'.'.join((check.name, *check.path))}: there is "
                    f"{check.missing}, in any row"
                )
        for name, parts in self._parts.items():
            shape = tuple(size or 0 for size in self._fields[name].shape)
            result.columns[name] = np.concatenate([np.zeros((0, *shape), self._fields[name].dtype), *parts])
        result.spools = {name: spool.finish() for name, spool in self._spools.items()}
        return result

    def _passes(self) -> Iterator[bool]:
        """Return whether each good row passes the filters, whose columns are read before."""
        plan, count = self._plan, 0
        if not plan.filters:
            return repeat(True)
        values = {name: list[object]() for name in plan.filters}
        for _, row in self._table.rows():
            if not isinstance(row, str):
                count += 1
                for name, title in plan.filters.items():
                    values[name].append(row.get(title))
        where, is_text = f"{self._table.path}: ", not self._table.is_typed
        return iter(plan.row_filter.mask(count, values.__getitem__, where=where, is_text=is_text).tolist())

    def _add(self, line: int, row: Mapping[str, Any]) -> None:
        result, position = self._result, len(self._result.keys)
        result.lines.append(line)
        key = f"{self._table.name}:{line}"
        for each in self._plan.files:
            names, problem = self._files(each, row)
            if problem:
                result.bad.setdefault(position, f"has a {each.path[0]!r} that {problem}")
            result.names[each.name] += names
            if each.is_list:
                result.counts[each.name].append(len(names))
            elif each.path[0] == self._plan.key:
                key = names[0]
        if self._plan.key is not None and not any(each.path[0] == self._plan.key for each in self._plan.files):
            key = self._own_key(row, position)
        result.keys.append(key)
        for name, convert in self._convert.items():
            value, problem = convert(row)
            if problem:
                result.bad.setdefault(position, problem)
            self._waiting[name].append(value)

    def _files(self, column: PlannedColumn, row: Mapping[str, Any]) -> tuple[list[str], str]:
        """The files that a row names, one unless the column lists them, and what is wrong with the first bad one."""
        try:
            value = column.value(row)
        except (KeyError, ValueError, RecursionError):
            return [], f"has no {'.'.join(column.path)!r}: it is {row.get(column.path[0])!r:.60}"
        if not column.is_list:
            name, problem = self._stems.name(value) if column.is_stem else safe_name(value, self._root)
            if value is None and not column.is_stem and column.field is None:
                problem += f"; --field {column.name}={column.path[0]}:image? packs samples with a picture or none"
            return [name], problem
        is_optional = column.field is not None and column.field.is_optional
        values = [] if value is None or value == "" else value if isinstance(value, list) else [value]
        if is_optional and len(values) > 1:
            return [], f"is a list of {len(values):,}, expected one name or none; image[*] takes lists"
        found = [safe_name(each, self._root) for each in values]
        problems = {i: problem for i, (_, problem) in enumerate(found) if problem}
        bad = list_problems(np.array([len(found)]), problems, is_optional=is_optional or not isinstance(value, list))
        return [name for name, _ in found], bad.get(0, "")

    def _own_key(self, row: Mapping[str, Any], position: int) -> str:
        """The key of a row in a column that names no files."""
        value = row.get(self._plan.key or "")
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            self._result.bad.setdefault(position, f"has {value!r:.60} as its key {self._plan.key!r}")
            return ""
        key = str(value)
        if shown(key) != key or not is_plain_path(key):
            self._result.bad.setdefault(position, f"has a key that is no plain path ({shown(key)!r:.80})")
            return ""
        return key

    def _leave_out(self, line: int, row: Mapping[str, Any]) -> None:
        names = [name for each in self._plan.files for name in self._files(each, row)[0]]
        self._result.left_out_names.update(names)
        key = next((name for name in names if name), f"{self._table.name}:{line}")
        self._result.left_out.append(Problem(shown(key), f"does not pass the filters ({self._table.name}:{line})"))

    def _encode(self) -> None:
        """Make the rows that wait bytes and numbers."""
        result = self._result
        for name, values in self._waiting.items():
            of = self._fields[name]
            plain = _plain_column(of, values)
            encoded = EncodedField(column=plain) if plain is not None else encode_values(of, values)
            if not self._table.has_columns and _has_infinity(of, encoded):
                for i in np.flatnonzero([_overflows(value) for value in values]).tolist():
                    sentence = f"has a number in {self._words[name]!r} that is beyond float64: write it as text"
                    result.bad.setdefault(self._first + i, sentence)
            for i, sentence in encoded.problems.items():
                result.bad.setdefault(self._first + i, sentence)
            if encoded.spans is not None:
                self._spools[name].append(encoded.spans, encoded.counts)
            elif encoded.column is not None:
                self._parts[name].append(encoded.column)
            self._waiting[name] = []
        self._first = len(result.keys)


def _field_of(column: PlannedColumn) -> Field:
    assert column.field is not None, column.name
    return column.field


def _plain_column(of: Field, values: Sequence[Any]) -> NDArray[Any] | None:
    """Numbers of the column's own Python type at once; None if they need a closer look."""
    kind = {"<i8": int, "<f8": float, "|b1": bool}.get(of.dtype)
    if not of.is_column or of.shape or kind is None or not all(type(value) is kind for value in values):
        return None
    try:
        return np.array(values, of.dtype)
    except OverflowError:
        return None


def _has_infinity(of: Field, encoded: EncodedField) -> bool:
    """Whether an infinite number is among the values of a field."""
    if np.dtype(of.dtype).kind != "f":
        return False
    arrays = [encoded.column] if encoded.spans is None else encoded.spans.runs().views()
    return any(np.isinf(array.view(of.dtype)).any() for array in arrays if array is not None)


def _overflows(value: Any) -> bool:
    """Whether a number of a file of text, or one in a list, is infinite without being written so."""
    if isinstance(value, list):
        return any(map(_overflows, value))
    return type(value) is float and math.isinf(value)


_Convert = Callable[[Mapping[str, Any]], tuple[Any, str]]


def _converter(
    column: PlannedColumn, table: TableFile, classes: Sequence[str] | None, check: PathCheck | None
) -> _Convert:
    """What makes a row the value of a column's field, and a sentence if it cannot."""
    if column.is_label:
        position = {name: i for i, name in enumerate(classes or ())}
        title = column.path[0]

        def label(row: Mapping[str, Any]) -> tuple[Any, str]:
            value = row.get(title)
            found = position.get(value) if isinstance(value, str) else None
            return (0, f"has no label in {title!r}") if found is None else (found, "")

        return label
    of, words = _field_of(column), ".".join(column.path)
    if column.kind is not None:
        return partial(_decoded, column.kind, of, column, words)
    parse = None if table.is_typed else _cell_parser(of)

    def convert(row: Mapping[str, Any]) -> tuple[Any, str]:
        value = row.get(column.path[0])
        try:
            if check is not None:
                document = document_in(value)
                value = value_at(document, check.path)
                missing = check.look_at(document, value)
                if missing and not of.traits.is_json:
                    return None, f"has nothing for the field {column.name!r}: {missing}"
            elif parse is not None and isinstance(value, str):
                value = parse(value)
        except KeyError:
            return None, f"has no {words!r}: there is {value!r:.60}"
        except NamedTwiceError as exc:
            return None, str(exc)
        except (ValueError, RecursionError) as exc:
            return None, f"has a {words!r} that is {value!r:.60}, expected {type_of(of)} ({exc})"
        if value is None and of.is_list and not of.is_optional:
            return (), ""  # as where a table of Arrow has null in place of a list
        if isinstance(value, str) and not (of.traits.is_text or of.traits.is_json or type_of(of) == "text?"):
            return None, f"has a {words!r} that is the text {value!r:.60}, expected {type_of(of)}"
        return value, ""

    return convert


def _decoded(kind: ColumnKind, of: Field, column: PlannedColumn, words: str, row: Mapping[str, Any]) -> tuple[Any, str]:
    """The bytes that a value stands for, of a list those of its elements, and a sentence if there are none."""
    try:
        value = column.value(row)
        if not of.is_list:
            return decoded(kind, value, words)
        elements, problem = decoded_elements(kind, of, value, words)
        return (next(iter(elements), None) if of.is_optional else elements), problem
    except (KeyError, ValueError, RecursionError):
        return (
            [] if of.is_list and not of.is_optional else b"",
            f"has no {words!r}: there is {row.get(column.path[0])!r:.60}",
        )


def _cell_parser(of: Field) -> Callable[[str], Any] | None:
    """What makes the text of a cell a value of a field; raises ValueError. None if text is what is wanted."""
    if of.traits.is_text:
        return None
    if type_of(of) == "text?":
        return lambda cell: cell or None
    if not of.shape and np.dtype(of.dtype).kind == "f":
        return _float_cell
    if not of.shape and np.dtype(of.dtype).kind in "iu":
        return int
    return _json_cell


def _float_cell(cell: str) -> float:
    """A cell as a number; "inf" and "nan" as the constants that they are."""
    value = float(cell)
    return value if math.isfinite(value) or any(map(str.isdecimal, cell)) else Constant(value)


def _json_cell(cell: str) -> Any:
    """A cell as JSON; an empty one is null, and booleans may be spelled as Python does."""
    if not cell:
        return None
    known = {"True": True, "False": False}
    return known[cell] if cell in known else json_of(cell)


# ValueSpool: encoded values of many samples in a temporary file, so that a table of any length takes little memory.


class ValueSpool:
    """
    Takes the values of one field, one after the other; with ``has_lists``, the elements of lists.

    They are in a file without a name in the folder for temporary files, which the system removes with the last user.
    """

    def __init__(self, field_name: str, *, has_lists: bool = False) -> None:
        self._field_name = field_name
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the values
        self._sizes = array("q")
        self._counts = array("q") if has_lists else None

    def append(self, spans: Spans, counts: NDArray[np.int64] | None = None) -> None:
        """Add values, of lists so many for each sample. Raises SourceError if there is no space for them."""
        try:
            for run in spans.runs().views():
                self._file.write(run.data)
        except OSError as exc:
            raise SourceError(
                f"{tempfile.gettempdir()}: the values of a table cannot be kept there: {exc.strerror or exc}; free "
                "space, or name another folder in TMPDIR"
            ) from exc
        self._sizes.extend(spans.sizes.tolist())
        if self._counts is not None and counts is not None:
            self._counts.extend(counts.tolist())

    def close(self) -> None:
        """Give up the file; values that ``finish`` returned stay."""
        self._file.close()

    def finish(self) -> SpooledValues:
        """Return all values; nothing can be added any more."""
        self._file.flush()
        sizes = np.array(self._sizes, np.int64)
        data = np.memmap(self._file, np.uint8, "r") if sizes.any() else np.zeros(0, np.uint8)
        self.close()
        firsts = None if self._counts is None else firsts_of(np.array(self._counts, np.int64))
        return SpooledValues(self._field_name, Spans.joined(data, sizes), firsts)


class SpooledValues:
    """The values of one field; of lists, those of a sample begin at its entry of ``firsts``."""

    def __init__(self, field_name: str, spans: Spans, firsts: NDArray[np.int64] | None = None) -> None:
        self._field_name, self._spans, self._firsts = field_name, spans, firsts

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The bytes of each sample, ``(n,)``."""
        return self._spans.sizes if self._firsts is None else sums_of(self._firsts, self._spans.sizes)

    def view(self, position: int) -> bytes:
        """Return one value."""
        return self._spans.view(position).tobytes()

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Return some values; see ``ListedSource.read``."""
        del pool  # they are where they are needed
        if self._firsts is None:
            spans = self._spans.at(indices)
            return lambda: Values({self._field_name: spans})
        elements, counts = elements_of(self._firsts, indices)
        lists = ListSpans(self._spans.at(elements), counts)
        return lambda: Values({}, lists={self._field_name: lists})
