"""Pictures that lists name, with numbers of a fixed shape for each: a label, a box, attributes, landmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.sources.files import IMAGE_FIELD, FileReader, paths_below
from fastio.converters.sources.layouts.roots import left_beside
from fastio.converters.sources.listed import Indices, ListedSource, Read, Values, names_at, read_together
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.record import root_to_record
from fastio.converters.sources.streams import opened
from fastio.converters.sources.tables.names import file_states, safe_name
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath, shown
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = [
    "NumberedPictures",
    "lines_of",
]


_LONGEST = 1 << 16  # bytes of a line


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines of a list that are not blank. Raises SourceError for what is no UTF-8."""
    with opened(path) as stream:
        for number, line in stream.lines(_LONGEST):
            if line is None:
                raise SourceError(f"{path}: line {number} is longer than {_LONGEST:,} bytes: is it a list?")
            text = ""
            with suppress(UnicodeDecodeError):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            if not text and line.strip():
                raise SourceError(f"{path}: line {number} is not UTF-8; convert it")
            if text:
                yield number, text


@dataclass(frozen=True, slots=True)
class NumberedPictures:
    """
    Pictures ``names`` below ``root`` that the files ``paths`` list, and their numbers.

    ``fields`` are by name a type, see ``field_of``, and an array (n, ...) with a row for each picture; those of a type
    with rows (boxes, points) have one row, or as many. ``bad`` says what is wrong with a picture, by position,
    ``problems`` what is wrong besides. ``also_read`` are files of other parts that the numbers depend on.
    """

    place: SourcePath
    kind: str
    options: SourceOptions
    root: str
    names: Sequence[str]
    paths: Sequence[str]
    fields: Mapping[str, tuple[str, NDArray[Any]]]
    classes: Sequence[str] | None = None
    field_classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bad: Mapping[int, str] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    also_read: Sequence[str] = ()

    def source(self) -> ListedSource:
        """Return the samples in the order of the list. Names that come twice, or that no file has, are problems."""
        if not self.names:
            raise SourceError(f"{self.place.path}: names no pictures")
        names, bad = list[str](), dict(self.bad)
        first: dict[str, int] = {}
        for i, given in enumerate(self.names):
            name, problem = safe_name(given, self.root)
            names.append(name)
            if problem:
                bad.setdefault(i, f"has a name that {problem}")
            elif first.setdefault(name, i) != i:
                bad.setdefault(i, "comes twice in the list")
                bad.setdefault(first[name], "comes twice in the list")
        states = file_states(self.root, names)
        if states.missing == len(names):
            raise SourceError(
                f"{self.place.path}: names pictures such as {shown(names[0])!r}, none of which is in "
                f"{shown(self.root)}: name their folder with --root"
            )
        for i, sentence in states.problems.items():
            bad.setdefault(i, f"has a name that {sentence}")
        order = np.setdiff1d(np.arange(len(names)), np.fromiter(bad, np.int64, len(bad)))
        made = [(field_of(name, type_), array) for name, (type_, array) in self.fields.items()]
        payload = {of.name: _rows(of.dtype, array) for of, array in made if not of.is_column}
        reads: list[Read] = [FileReader(IMAGE_FIELD, self.root, names_at(names), states.sizes).begin]
        reads += [_reader(name, rows) for name, rows in payload.items()]
        record = source_record(self.kind, self.place.name, labels=None)
        if self.options.root is not None:
            record["root"] = root_to_record(self.options.root, self.place.path)
        classes = None if self.classes is None else list(self.classes)
        further = {name: list(titles) for name, titles in self.field_classes.items()}
        columns = [of for of, _ in made if of.is_column]
        return ListedSource(
            path=self.place.path,
            kind=self.kind,
            schema=Schema((IMAGE_FIELD, *(of for of, _ in made if not of.is_column), *columns)),
            metadata={"classes": classes, "source": record, **({"field_classes": further} if further else {})},
            keys_at=names_at(names),
            sizes=states.sizes + sum(rows.shape[1] for rows in payload.values()),
            read=read_together(reads),
            disk_bytes=states.disk_bytes + sum(Path(path).stat().st_blocks * 512 for path in self.paths),
            files_opened=len(order) + len(self.paths),
            columns={of.name: np.ascontiguousarray(array, of.dtype) for of, array in made if of.is_column},
            problems=[*self.problems, *(Problem(shown(names[i] or self.names[i]), bad[i]) for i in sorted(bad))],
            left_out=left_beside(self.place, self.root, names, self.paths),
            order=order,
            is_by_name=False,
            # With those that are not there: that one came is noticed by whoever reads the folder in place.
            paths=lambda: [*self.paths, *self.also_read, *paths_below(self.root, names)],
        )


def _rows(dtype: str, array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of each row, (n, bytes)."""
    plain = np.ascontiguousarray(array, dtype).reshape(len(array), -1)
    return plain.view(np.uint8).reshape(len(array), -1)


def _reader(name: str, rows: NDArray[np.uint8]) -> Read:
    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        del pool  # they are in memory
        data = rows[indices].reshape(-1)
        return lambda: Values({name: Spans.joined(data, np.full(len(indices), rows.shape[1], np.int64))})

    return begin
