"""Decides which columns of a label file are the file name, the label and a filter, and what to say about the others."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from fastio.converters.labels.filters import Filter, RowFilter, as_text
from fastio.converters.sources.tables.titles import alike, nearest
from fastio.errors import SourceError
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "ALL_OTHERS",
    "LABEL_TITLES",
    "Columns",
    "LabelOptions",
    "choose_columns",
    "has_known_title",
]


ALL_OTHERS = "*"

_NAME_TITLES = ("filename", "file_name", "file", "image", "image_name", "path", "name", "key", "fname", "img", "id")
LABEL_TITLES = ("label", "class", "target", "category", "labels", "class_name", "class_id", "y")
_MOST_FILTER_VALUES = 6  # a column with more different values is not suggested for --filter,
_LONGEST_FILTER_VALUE = 20  # nor one with longer values
_LOOKED_AT = 50  # values that tell whether a column names pictures


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """
    How to read a label file; without any options, its column titles decide.

    ``label_columns`` and ``key_column`` name columns by their titles (or by numbers from 1 if ``header`` is False:
    the first line is then a sample). ``filters`` are pairs of column and value, and expressions: see RowFilter.
    ``ignore_columns`` are left out on purpose; ``*`` means all others.
    ``many_classes`` accepts nearly as many classes as samples.
    """

    label_columns: tuple[str, ...] = ()
    key_column: str | None = None
    filters: tuple[Filter, ...] = ()
    ignore_columns: tuple[str, ...] = ()
    header: bool = True
    many_classes: bool = False

    @property
    def names_columns(self) -> bool:
        """Whether any columns are named: a file without columns cannot be read that way."""
        return bool(self.label_columns or self.key_column or self.filters or self.ignore_columns or not self.header)

    @property
    def row_filter(self) -> RowFilter:
        """What ``filters`` say."""
        return RowFilter(self.filters)

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, as the store keeps it."""
        return {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> LabelOptions:
        """Read what ``to_json`` wrote."""
        key = said.get("key_column")
        return cls(
            label_columns=tuple(map(str, said.get("label_columns", ()))),
            key_column=None if key is None else str(key),
            filters=tuple(
                each if isinstance(each, str) else (str(each[0]), str(each[1])) for each in said.get("filters", ())
            ),
            ignore_columns=tuple(map(str, said.get("ignore_columns", ()))),
            header=bool(said.get("header", True)),
            many_classes=bool(said.get("many_classes", False)),
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """Positions in a row: of the file name, the label or labels, and the columns of filters, by their name there."""

    key: int
    labels: tuple[int, ...]
    filters: Mapping[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last position that a row must have."""
        return max(self.key, *self.labels, *self.filters.values())

    def label_of(self, cells: Sequence[Any]) -> Any:
        """Return the label of a row; a list if several columns make it."""
        if len(self.labels) == 1:
            return cells[self.labels[0]]
        return [cells[position] for position in self.labels]


def has_known_title(titles: Iterable[str]) -> bool:
    """Return whether one of the titles is usual for file names or labels."""
    known = {*_NAME_TITLES, *LABEL_TITLES}
    return any(title.strip().lower() in known for title in titles)


def choose_columns(
    titles: Sequence[str],
    options: LabelOptions,
    *,
    where: str,
    values: Callable[[int], Iterable[Any]] = lambda _: (),
) -> Columns:
    """
    Choose the columns of a file with these titles.

    Raises SourceError, with the options to type, if a title is missing or comes twice, if no known title exists for
    the name or the label, or if a column is neither used nor ignored. ``values(position)`` returns some of a column's
    values, for advice.
    """
    table = _Titles([title.strip() for title in titles], where)
    ignores_all = ALL_OTHERS in options.ignore_columns
    ignored = {table.at(name, "--without") for name in options.ignore_columns if name != ALL_OTHERS}
    filters = {name: table.at(name, "--filter") for name in options.row_filter.columns}
    labels = tuple(table.at(name, "--label-column") for name in options.label_columns)
    key = None if options.key_column is None else table.at(options.key_column, "--key-column")
    taken = {*ignored, *filters.values(), *labels}
    if key is None:
        key = table.first_of(_NAME_TITLES, taken)
    if not labels:
        found = table.first_of(LABEL_TITLES, {*ignored, -1 if key is None else key})
        labels = () if found is None else (found,)
    if key in labels:
        raise SourceError(f"{where}: {titles[labels[0]]!r} cannot be both the file name and the label")
    used = {*ignored, *filters.values(), *labels, -1 if key is None else key}
    free = [i for i in range(len(titles)) if i not in used]
    if key is None or not labels:
        raise _unknown_titles(table, free, has_key=key is not None, has_label=bool(labels), values=values)
    if free and not ignores_all:
        raise _unused_columns(table, free, values=values)
    return Columns(key, labels, filters)


@dataclass(frozen=True, slots=True)
class _Titles:
    """The titles of a file and the place they stand in, for messages."""

    titles: list[str]
    where: str

    def at(self, name: str, option: str) -> int:
        """Return the position of a title, by exact spelling or, if that is unambiguous, ignoring case."""
        found = alike(name, self.titles)
        if not found:
            near = nearest(name, self.titles)
            raise SourceError(f"{self.where}: {option} {name}: there is no such column among {self.listed()}{near}")
        if len(found) > 1:
            raise _twice(name, self.where)
        return found[0]

    def first_of(self, known: Sequence[str], taken: set[int]) -> int | None:
        """Return the position of the first known title that exists and is not taken."""
        lower = [title.lower() for title in self.titles]
        for title in known:
            places = [i for i, each in enumerate(lower) if each == title and i not in taken]
            if len(places) > 1:
                raise _twice(title, self.where)
            if places:
                return places[0]
        return None

    def listed(self, positions: Iterable[int] | None = None) -> str:
        """Return titles in quotes, one after the other."""
        chosen = range(len(self.titles)) if positions is None else positions
        return ", ".join(repr(self.titles[i]) for i in chosen)


def _twice(title: str, where: str) -> SourceError:
    return SourceError(f"{where}: {title!r} comes twice, so it is unclear which one counts: rename one")


def _unknown_titles(
    table: _Titles, free: Sequence[int], *, has_key: bool, has_label: bool, values: Callable[[int], Iterable[Any]]
) -> SourceError:
    """What to say where no known title stands over the names or the labels: the options to type, as far as clear."""
    key = None if has_key else next((i for i in free if _names_pictures(values(i))), None)
    others = [i for i in free if i != key]
    label = others[0] if len(others) == 1 and (has_key or key is not None) else None
    options = [] if has_key else [f"--key-column {_quoted(table, key)}"]
    options += [] if has_label else [f"--label-column {_quoted(table, label)}"]
    missing = " and ".join(["file names"] * (not has_key) + ["labels"] * (not has_label))
    several = "" if has_label or label is not None or not others else ", or A,B for several numbers per sample"
    ignoring = ", with --without for what is neither" if len(others) > 1 else ""
    return SourceError(
        f"{table.where}: no known title for the {missing} among {table.listed(free) or 'none'}: add "
        f"{' '.join(options)}{several}{ignoring}"
    )


def _quoted(table: _Titles, position: int | None) -> str:
    return "NAME" if position is None else shlex.quote(table.titles[position])


def _names_pictures(values: Iterable[Any]) -> bool:
    """Whether values are names of pictures, as far as one looks."""
    found = list(islice(values, _LOOKED_AT))
    return bool(found) and all(isinstance(value, str) and kind_by_name(value) for value in found)


def _unused_columns(table: _Titles, unused: Sequence[int], *, values: Callable[[int], Iterable[Any]]) -> SourceError:
    """What to say of columns that nobody named: the option that leaves them out, and the one that filters by one."""
    titles = [table.titles[i] for i in unused]
    names = shlex.quote(ALL_OTHERS if any(not title or "," in title for title in titles) else ",".join(titles))
    is_one = len(unused) == 1
    steps = [f"--without {names} leaves {'it' if is_one else 'them'} out"]
    for i in unused:
        found = sorted({as_text(value) for value in values(i)})
        if 2 <= len(found) <= _MOST_FILTER_VALUES and max(map(len, found)) <= _LONGEST_FILTER_VALUE:
            choice = next((each for each in ("train", "training") if each in found), found[0])
            pair = shlex.quote(f"{table.titles[i]}={choice}")
            steps.append(f"--filter {pair} takes the rows of one value ({', '.join(found)})")
            break
    columns = f"column{'' if is_one else 's'} {table.listed(unused)}"
    return SourceError(f"{table.where}: {columns} {'is' if is_one else 'are'} not used: {'; '.join(steps)}")
