"""TablePlan: which column of a table is the key, a file, the label or a field, and of which type."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fastio.converters.fields.types import FieldChoice, refuse_equal_names
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.labels.filters import RowFilter
from fastio.converters.labels.values import WHOLE
from fastio.converters.sources.chat_forms import TURNS, ChatColumns, chat_columns, pictures_in, refuse_pictures_twice
from fastio.converters.sources.column_kinds import ColumnKind, column_kind, elements_in, field_of_values
from fastio.converters.sources.columns import FIRST_VALUES, is_empty, names_picture
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.tables.rows import value_in
from fastio.converters.sources.tables.titles import alike, column_path, nearest
from fastio.errors import SourceError
from fastio.types.field_types import field_of, type_of
from fastio.types.picture_kinds import kind_by_name
from fastio.types.schema import Field

__all__ = [
    "ColumnGuess",
    "PlannedColumn",
    "TablePlan",
    "label_title",
    "make_plan",
]


FILE_TITLES: Final = ("file_name", "_file_name")  # of Hugging Face's ImageFolder: the sample's file, a further one
LIST_TITLES: Final = ("file_names", "_file_names")  # any number of them
_NAME_TITLES = ("filename", "file_name", "file", "image", "image_name", "image_path", "path", "name", "key", "img")
_MANY = 20  # samples from which nearly as many classes are doubted


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """
    A column of a table, or a path into its JSON, that becomes a field.

    ``path`` is the title and the names below it. ``field`` is None for files without a type, whose content will tell,
    and for keys that are not a field. ``is_file`` says that values name files, ``is_stem`` that they do so without
    extensions, ``is_list`` that a row names any number of files, ``is_label`` that texts are classes.
    ``kind`` is the way in which values stand for bytes, None if they are what they are. ``is_in_turns`` says that the
    path leads to the turns of a chat, whose parts say which pictures they are.
    """

    name: str
    path: tuple[str, ...]
    field: Field | None = None
    is_file: bool = False
    is_stem: bool = False
    is_list: bool = False
    is_label: bool = False
    kind: ColumnKind | None = None
    is_in_turns: bool = False

    def value(self, row: Mapping[str, Any]) -> Any:
        """
        Return the value in a row, None if it is not there; of a list of pictures, those that are there if another list
        of the row says where they belong. Raises KeyError for a path through something else, and ValueError where JSON
        is expected and is none.
        """
        value = value_in(row, self.path)
        if self.is_in_turns:
            return pictures_in(value)
        return _without_gaps(value, row) if isinstance(value, list) and None in value else value


@dataclass(frozen=True, slots=True)
class TablePlan:
    """
    How rows become samples.

    ``key`` is the title whose value is the sample's key, None if rows have no keys; ``columns`` are those that become
    fields, the key's file first. ``filters`` are the titles of what ``row_filter`` names. ``ignored`` are the titles
    that become nothing, ``without`` those that the user leaves out, of which there may be fields from inside. ``chat``
    says which columns are parts of chats, if these are asked for: fields of the names of the parts.
    """

    key: str | None
    columns: Sequence[PlannedColumn]
    filters: Mapping[str, str]
    ignored: Sequence[str]
    without: frozenset[str]
    row_filter: RowFilter
    chat: ChatColumns | None = None

    @property
    def files(self) -> list[PlannedColumn]:
        """The columns that name files."""
        return [each for each in self.columns if each.is_file]

    @property
    def values(self) -> list[PlannedColumn]:
        """The columns whose values are in the table itself."""
        return [each for each in self.columns if not each.is_file]


def _without_gaps(value: list[Any], row: Mapping[str, Any]) -> list[Any]:
    """
    The elements that are not null, as interleaved documents have them (OBELICS): another list of the row has null where
    this one has an element, and an element where it has null, and keeps their places. Any other list as it is.
    """
    gaps = [each is None for each in value]
    others = (each for each in row.values() if isinstance(each, list) and len(each) == len(value))
    is_interleaved = any(all(gap != (each is None) for gap, each in zip(gaps, other, strict=True)) for other in others)
    return [each for each in value if each is not None] if is_interleaved else value


def label_title(options: SourceOptions) -> str:
    """Return the title of the column of classes: ``--label-column``, ``--field label=...`` or "label"."""
    titles = options.columns.label_columns
    if len(titles) > 1:
        raise SourceError(
            f"--label-column {','.join(titles)}: one column of a table can be the label; the others become fields"
        )
    asked = next((choice.where for choice in options.fields if choice.name == "label"), None)
    return titles[0] if titles else asked or "label"


def make_plan(
    where: str, guesses: Mapping[str, ColumnGuess], options: SourceOptions, stem_title: str = ""
) -> TablePlan:
    """
    Decide what each column becomes, from the options and what its values are; ``stem_title`` is the column that names
    pictures without their extensions, "" if none does.

    Raises SourceError, with what to type, for titles that do not exist, for columns that would have the same name,
    and for values that no field can have. ``where`` is the table's path.
    """
    return _Planner(where, guesses, options, stem_title).plan()


@dataclass(slots=True)
class _Planner:
    where: str
    guesses: Mapping[str, ColumnGuess]
    options: SourceOptions
    stem_title: str = ""
    has_pictures: bool = False  # in a column itself: names of files beside it are names alone

    def plan(self) -> TablePlan:
        self.has_pictures = any(each.kind is not None for each in self.guesses.values())
        columns = self.options.columns
        ignored = {self._title(each, "--without") for each in columns.ignore_columns if each != ALL_OTHERS}
        filters = {name: self._title(name, "--filter") for name in columns.row_filter.columns}
        paths = {choice: self._path(choice) for choice in self.options.fields}
        chosen = {path[0]: choice for choice, path in paths.items() if len(path) == 1}
        if len(chosen) < sum(len(path) == 1 for path in paths.values()):
            raise SourceError(f"{self.where}: two --field options name the same column")
        key = None if columns.key_column is None else self._title(columns.key_column, "--key-column")
        label = self._label()
        chat = self._chat(ignored)
        found: list[PlannedColumn] = []
        for title in self.guesses:
            choice = chosen.get(title)
            if chat is not None and choice is None and title != label:
                if title not in (*ignored, *chat.titles):
                    found += self._pictures(title)
                continue
            is_named = choice is not None or title in (label, key, *filters.values())
            if title in ignored and choice is None and title != key:
                continue
            if ALL_OTHERS in columns.ignore_columns and not is_named and not _is_file_title(title):
                ignored.add(title)
                continue
            found.append(self._column(title, choice, is_label=title == label))
        found += [self._inner_column(choice, path) for choice, path in paths.items() if len(path) > 1]
        found = self._called_image(found)
        if chat is None:
            key = key or self._key(found)
        else:
            found += self._in_turns(chat, found)
            found += [self._part(part, path) for part, path in chat.parts.items()]
        found = [each for each in found if each.path != (key,) or each.is_file or each.name in _names(self.options)]
        refuse_equal_names(self.where, "column", ((each.name, ".".join(each.path)) for each in found))
        first = next((each for each in found if each.is_file and each.path == (key,)), None)
        found.sort(key=lambda each: (each is not first, not each.is_file))
        kept = {each.path[0] for each in found} | {key}
        return TablePlan(
            key,
            found,
            filters,
            [title for title in self.guesses if title not in kept],
            frozenset(ignored),
            columns.row_filter,
            chat,
        )

    def _chat(self, without: Collection[str]) -> ChatColumns | None:
        """Where the chats are, None if none are asked for."""
        if self.options.chat is None:
            return None
        return chat_columns(
            self.where,
            self.options.chat,
            self.guesses,
            without,
            lambda path: _values_at(self.guesses[path[0]].first, path),
        )

    def _part(self, part: str, path: tuple[str, ...]) -> PlannedColumn:
        """A part of chats: text that may be missing, or any JSON."""
        is_text = len(path) == 1 and (self.guesses[path[0]].is_text or not self.guesses[path[0]].is_typed)
        return PlannedColumn(part, path, field_of(part, "text?" if is_text else "json"))

    def _pictures(self, title: str) -> list[PlannedColumn]:
        """The column as pictures beside a chat, any number of them or one that may be missing; none if it has none."""
        guess, asked = self.guesses[title], [choice.field for choice in self.options.fields if choice.field is not None]
        if any(each.element.traits.is_image for each in asked):
            return []
        if guess.kind is not None:
            name = self._field_name(title)
            field = field_of_values(name, guess.kind, guess.first)
            field = field if field.is_list else field.listed(is_optional=True)
            return [PlannedColumn(name, (title,), field, kind=guess.kind)]
        are_names = guess.names_pictures is not False and guess.kinds <= {"text", "json", "null"}
        if not are_names or not (guess.names_pictures or guess.lists_pictures):
            return []
        if "json" in guess.kinds:
            return [PlannedColumn(_list_field(title), (title,), is_file=True, is_list=True)]
        name = _file_field(title)
        return [PlannedColumn(name, (title,), field_of(name, "image?"), is_file=True, is_list=True)]

    def _in_turns(self, chat: ChatColumns, found: Sequence[PlannedColumn]) -> list[PlannedColumn]:
        """The pictures that the turns of chats say themselves; none if a column holds them, as the user says."""
        path = chat.parts.get(TURNS)
        first = [] if path is None else [pictures_in(value) for value in _values_at(self.guesses[path[0]].first, path)]
        said = [each for pictures in first for each in pictures if each is not None]
        columns = [each for each in found if each.is_list or (each.field and each.field.element.traits.is_image)]
        if path is None or not said or any(each.name in _names(self.options) for each in columns):
            return []
        if columns:
            turns = _values_at(self.guesses[path[0]].first, path)
            column = columns[0].path[0]
            of_turns = f"--without {column} takes those of the turns"
            refuse_pictures_twice(self.where, path, turns, column, columns[0].name, of_turns=of_turns)
        kind = column_kind(first)
        if kind is None:
            return [PlannedColumn("images", path, is_file=True, is_list=True, is_in_turns=True)]
        return [PlannedColumn("images", path, field_of_values("images", kind, first), kind=kind, is_in_turns=True)]

    def _column(self, title: str, choice: FieldChoice | None, *, is_label: bool) -> PlannedColumn:
        guess = self.guesses[title]
        if choice is not None and choice.name != "label":
            if choice.field is None:
                return self._of_guess(choice.name, guess)
            if choice.field.is_list:
                return self._list_column(choice, choice.field, (title,), guess)
            takes_bytes = choice.field.traits.is_picture or type_of(choice.field) == "bytes"
            if takes_bytes and guess.kind is not None:
                return PlannedColumn(choice.name, (title,), choice.field, kind=guess.kind)
            if title == self.stem_title and takes_bytes:
                return PlannedColumn(choice.name, (title,), choice.field, is_file=True, is_stem=True)
            is_file = guess.is_text and (takes_bytes or _is_file_title(title))
            return PlannedColumn(choice.name, (title,), choice.field, is_file=is_file)
        if is_label:
            return self._label_column(guess, choice)
        return self._of_guess("", guess)

    def _list_column(
        self, choice: FieldChoice, field: Field, path: tuple[str, ...], guess: ColumnGuess | None
    ) -> PlannedColumn:
        """
        A column of lists, or of values that may be missing, as the user says: of names of files, if they are of
        pictures or bytes or the column is called so; otherwise of the values themselves.
        """
        is_of_bytes = field.element.traits.is_picture or type_of(field.element) == "bytes"
        if not is_of_bytes and (guess is None or not guess.title.endswith(FILE_TITLES + LIST_TITLES)):
            return PlannedColumn(choice.name, path, field)
        values = list(_values_at(self.guesses[path[0]].first, path))
        kind = column_kind(values)
        if kind is not None:
            return PlannedColumn(choice.name, path, field, kind=kind)
        names = (
            guess.kinds <= {"text", "json", "null"} if guess else any(map(names_picture, elements_in(values) or values))
        )
        if not names:
            raise SourceError(
                f"{self.where}: --field {choice}: {type_of(field)} takes a column that names files; "
                f"--field {choice.name}={choice.where}:json keeps the values of any other"
            )
        return PlannedColumn(choice.name, path, field, is_file=True, is_list=True)

    def _inner_column(self, choice: FieldChoice, path: tuple[str, ...]) -> PlannedColumn:
        """A field from inside JSON; without a type it is JSON, or what its values stand for."""
        if choice.field is not None and choice.field.is_list:
            return self._list_column(choice, choice.field, path, None)
        values = list(_values_at(self.guesses[path[0]].first, path))
        field, kind = choice.field, column_kind(values)
        if kind is not None and (field is None or field.traits.is_picture or type_of(field) == "bytes"):
            return PlannedColumn(choice.name, path, field or field_of_values(choice.name, kind, values), kind=kind)
        return PlannedColumn(choice.name, path, field or field_of(choice.name, "json"))

    def _called_image(self, columns: list[PlannedColumn]) -> list[PlannedColumn]:
        """
        The columns, of which the only one with pictures that are no masks is called image, or images if it has lists,
        unless the user says.
        """
        pictures = [each for each in columns if each.kind and each.field and each.field.element.traits.is_image]
        if len(pictures) != 1 or pictures[0].name in _names(self.options):
            return columns
        (only,) = pictures
        assert only.field is not None
        name = "images" if only.field.is_list else "image"
        if any(each.is_file or each.name == name for each in columns):
            return columns
        named = replace(only, name=name, field=replace(only.field, name=name))
        return [named if each is only else each for each in columns]

    def _of_guess(self, name: str, guess: ColumnGuess) -> PlannedColumn:
        """A column whose values tell its type; ``name`` is "" if its title is to."""
        if guess.title == self.stem_title:
            return PlannedColumn(name or "image", (guess.title,), is_file=True, is_stem=True)
        if guess.kind is not None:
            name = name or self._field_name(guess.title)
            return PlannedColumn(name, (guess.title,), field_of_values(name, guess.kind, guess.first), kind=guess.kind)
        if guess.lists_files:
            return PlannedColumn(name or _list_field(guess.title), (guess.title,), is_file=True, is_list=True)
        is_name_alone = guess.names_files and self.has_pictures and not _is_file_title(guess.title)
        if guess.is_text and not is_name_alone and (_is_file_title(guess.title) or guess.names_files):
            return PlannedColumn(name or _file_field(guess.title), (guess.title,), is_file=True)
        name = name or self._field_name(guess.title)
        type_ = guess.type()
        if not type_:
            others = ", ".join(sorted(guess.kinds - {"null"}))
            raise SourceError(
                f"{self.where}: column {guess.title!r} holds {others}, which no field can: --without "
                f"{guess.title!r} leaves it out"
            )
        return PlannedColumn(name, (guess.title,), field_of(name, type_))

    def _label_column(self, guess: ColumnGuess, choice: FieldChoice | None) -> PlannedColumn:
        """The column of classes: names become numbers, numbers stay."""
        if choice is not None and choice.field is not None:
            if not choice.field.is_column:
                raise SourceError(f"--field {choice}: 'label' is a number of each sample; call another field otherwise")
            return PlannedColumn("label", (guess.title,), choice.field)
        if guess.is_text or (guess.type() == "text"):
            self._check_classes(guess)
            return PlannedColumn("label", (guess.title,), field_of("label", "label"), is_label=True)
        type_ = guess.type()
        if type_ not in ("int", "float", "bool"):
            raise SourceError(
                f"{self.where}: column {guess.title!r}: labels are {' and '.join(sorted(guess.kinds))}; expected one "
                f"number or name of a class in each row, or --field NAME={guess.title} to make it another field"
            )
        return PlannedColumn("label", (guess.title,), field_of("label", type_))

    def _check_classes(self, guess: ColumnGuess) -> None:
        """SourceError where more than three quarters of the samples would be a class of their own."""
        many, count = len(guess.texts), guess.count
        if count >= _MANY and 4 * many > 3 * count and not self.options.columns.many_classes:
            raise SourceError(
                f"{self.where}: column {guess.title!r} has {many:,} different values in {count:,} rows, e.g. "
                f"{min(guess.texts)!r:.60}: captions or names rather than classes? --field text={guess.title} "
                "makes it a text, --many-classes classes"
            )

    def _label(self) -> str:
        """The title of the label, "" without one."""
        title = label_title(self.options)
        if self.options.columns.label_columns:
            return self._title(title, "--label-column")
        if self.options.chat is not None:
            return ""
        return title if title in self.guesses and "." not in title else ""

    def _key(self, columns: Sequence[PlannedColumn]) -> str | None:
        """The column of files that names the samples: "file_name", "image", a usual title, or the first."""
        files = [each for each in columns if each.is_file and not each.is_list]
        if not files and self.has_pictures:
            asked = _names(self.options)
            names = [each for each in columns if len(each.path) == 1 and self.guesses[each.path[0]].names_files]
            return next((each.path[0] for each in names if each.name not in asked), None)
        for title in ("file_name", *_NAME_TITLES):
            for each in files:
                if each.path[0].lower() == title:
                    return each.path[0]
        named = next((each for each in files if each.name == "image"), None)
        return named.path[0] if named else files[0].path[0] if files else None

    def _path(self, choice: FieldChoice) -> tuple[str, ...]:
        """The title that ``choice`` names, or a title and what is below it."""
        return column_path(choice.where, self.guesses) or (self._title(choice.where, f"--field {choice.name}="),)

    def _title(self, name: str, option: str) -> str:
        """The title that a user means, by exact spelling or, if that is unambiguous, ignoring case."""
        titles = list(self.guesses)
        found = alike(name, titles)
        if len(found) == 1:
            return titles[found[0]]
        listed = ", ".join(map(repr, self.guesses))
        near = nearest(name, titles)
        between = "" if option.endswith("=") else " "
        is_folder = option.startswith("--field") and Path(self.where).parent.joinpath(name).is_dir()
        hint = "; --source-kind pairs takes it as a folder" if is_folder else ""
        raise SourceError(
            f"{self.where}: {option}{between}{name}: there is no such column among {listed:.500}{near}{hint}"
        )

    def _field_name(self, title: str) -> str:
        name = re.sub(r"[^a-z0-9_]", "_", title.lower())
        if not name[:1].isalpha():
            raise SourceError(
                f"{self.where}: column {title!r} cannot be the name of a field: --field NAME={title!r} gives it one, "
                f"--without {title!r} leaves it out"
            )
        return name


def _values_at(documents: Sequence[Any], path: Sequence[str]) -> Iterator[Any]:
    """What a path leads to in some values of its column, where that is not empty."""
    for document in documents:
        with suppress(KeyError, ValueError, RecursionError):
            value = value_in({path[0]: document}, path)
            if not is_empty(value):
                yield value


def _names(options: SourceOptions) -> set[str]:
    return {choice.name for choice in options.fields}


def _is_file_title(title: str) -> bool:
    return title == FILE_TITLES[0] or title.endswith(FILE_TITLES[1])


def _file_field(title: str) -> str:
    """The field of a column of files: "mask_file_name" is "mask", "path" is "image"."""
    lower = title.lower()
    if lower in _NAME_TITLES:
        return "image"
    name = re.sub(r"[^a-z0-9_]", "_", lower)
    for end in ("_file_name", "_filename", "_path", "_file"):
        name = name.removesuffix(end)
    return name if name[:1].isalpha() else "image"


def _list_field(title: str) -> str:
    """The field of a column of lists of files: "file_names" is "images", "frame_file_names" is "frame"."""
    name = re.sub(r"[^a-z0-9_]", "_", title.lower())
    for end in ("file_names", "filenames"):
        name = name.removesuffix(end).rstrip("_")
    return name if name[:1].isalpha() else "images"


# ColumnGuess: what type all values of a table's column have, found in one pass over its rows.

_EXACT: Final = 2**53  # whole numbers up to here are float64 to the last digit
_INT64: Final = 2**63
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: Final = (frozenset(["true", "false"]), frozenset(["True", "False"]))
_LOOKED_AT = 50  # values that tell whether a column names pictures


@dataclass(slots=True)
class ColumnGuess:
    """
    The values of one column, as far as its type needs them.

    ``first`` are the first that are not empty, which tell whether they hold pictures; names of pictures are looked for
    among more of them, wherever the first rows are.

    ``kinds`` are "int", "large" (a whole number that int64 cannot hold), "float", "bool", "text", "json" (a list or an
    object), "bytes", "null" and others by their Python names; an empty cell is "null". ``count`` counts rows that
    have the column at all, ``nulls`` those of them that say nothing, ``missing`` those that have no such column. With
    ``keeps_texts``, ``texts`` are the different texts.
    """

    title: str
    is_typed: bool
    keeps_texts: bool = False
    kinds: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)  # different spellings of booleans in cells
    count: int = 0
    nulls: int = 0
    missing: int = 0
    texts: set[str] = field(default_factory=set)
    names_pictures: bool | None = None  # whether all texts so far do
    lists_pictures: bool | None = None  # whether all lists so far are of such names
    largest: int = 0
    looked_at: int = 0  # values that are not empty, until there were enough
    first: list[Any] = field(default_factory=list)

    def add(self, value: Any) -> None:
        """Take one more value."""
        self.count += 1
        if self.looked_at <= _LOOKED_AT and not is_empty(value):
            self.looked_at += 1
            if len(self.first) < FIRST_VALUES:
                self.first.append(value)
        if type(value) is str:
            self._add_text(value)
        elif value is None:
            self.nulls += 1
            self.kinds.add("null")
        elif type(value) is int:
            self._add_whole(value)
        else:
            if self.lists_pictures is not False and self.looked_at <= _LOOKED_AT and not is_empty(value):
                self.lists_pictures = _are_names(value, self.lists_pictures)
            kind = float if isinstance(value, float) else dict if isinstance(value, dict) else type(value)
            self.kinds.add(_KINDS.get(kind, kind.__name__))

    def finish(self, rows: int) -> None:
        """Take the number of all rows: what is not there is no value, like null."""
        self.missing = rows - self.count
        if self.missing:
            self.kinds.add("null")

    def type(self) -> str:
        """
        Return "int", "float", "bool", "text", "json" or "bytes"; "" if values are of types that no field can have.

        Whole numbers among fractions are fractions if float64 holds them exactly. Columns with nulls, with values of
        several kinds or with numbers beyond int64 are JSON, which changes none of them.
        """
        kinds = self.kinds
        if kinds - _KNOWN:
            return ""
        if not self.is_typed:
            return self._type_of_cells()
        if len(kinds) == 1 and (only := next(iter(kinds))) in ("int", "float", "bool", "text", "bytes"):
            return only
        if kinds == {"int", "float"} and self.largest <= _EXACT:
            return "float"
        return "" if "bytes" in kinds else "json"

    @property
    def is_text(self) -> bool:
        """Whether all values that are there are text."""
        return self.kinds <= {"text", "null"} and "text" in self.kinds

    @property
    def kind(self) -> ColumnKind | None:
        """The way in which the first values stand for bytes, None if they are what they are."""
        return column_kind(self.first)

    @property
    def names_files(self) -> bool:
        """Whether the first values are names of pictures."""
        return bool(self.names_pictures) and self.is_text

    @property
    def lists_files(self) -> bool:
        """Whether the first values are lists of names of pictures, or such names among lists."""
        return bool(self.lists_pictures) and self.names_pictures is not False and self.kinds <= {"json", "text", "null"}

    def _type_of_cells(self) -> str:
        """The type of cells without types; text as soon as one cell is nothing else."""
        kinds = self.kinds - {"null"}
        has_gaps = bool(self.nulls or self.missing)
        if kinds == {"bool"} and any(self.words <= each for each in _WORDS):
            return "json" if has_gaps else "bool"
        if kinds == {"int"}:
            return "json" if has_gaps else "int"
        if kinds in ({"int", "float"}, {"float"}) and self.largest <= _EXACT:
            return "json" if has_gaps else "float"
        return "text"

    def _add_text(self, value: str) -> None:
        if self.names_pictures is not False and self.looked_at <= _LOOKED_AT and value:
            self.names_pictures = kind_by_name(value) != 0
        if self.keeps_texts and value:
            self.texts.add(value)
        if self.is_typed:
            self.kinds.add("text")
        elif not value:
            self.nulls += 1
            self.kinds.add("null")
        elif "text" not in self.kinds:
            self._add_cell(value)

    def _add_cell(self, cell: str) -> None:
        if WHOLE.match(cell) and "." not in cell:
            self._add_whole(int(cell) if len(cell) <= 20 else _INT64)
            if "large" in self.kinds or cell.startswith("-0"):
                self.kinds.add("text")
        elif _FRACTION.match(cell) and math.isfinite(float(cell)):
            self.kinds.add("float")
        elif any(cell in words for words in _WORDS):
            self.words.add(cell)
            self.kinds.add("bool")
        else:
            self.kinds.add("text")

    def _add_whole(self, value: int) -> None:
        self.largest = max(self.largest, abs(value))
        self.kinds.add("int" if -_INT64 <= value < _INT64 else "large")


def _are_names(value: Any, before: bool | None) -> bool | None:
    """Whether a value is a list of names of pictures; ``before``, if nothing but null is in it."""
    there = [each for each in value if each is not None] if isinstance(value, list) else [None]
    return all(map(names_picture, there)) if there else before


_KINDS: Final = {float: "float", bool: "bool", list: "json", dict: "json", bytes: "bytes"}
_KNOWN: Final = frozenset(["int", "large", "float", "bool", "text", "json", "bytes", "null"])
