"""The options that say what files are: labels, columns, fields; of ``pack``, and of who opens a path in place."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

import click

from fastio.cli.screen import WholeNumber
from fastio.cli.source_kind import source_kind_option, split_of

if TYPE_CHECKING:
    from fastio.converters import Source, SourceKind
    from fastio.converters.fields.types import FieldChoice
    from fastio.converters.labels.filters import Filter
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.recognise import Recognised
    from fastio.store.kinds.unpacked import Unpacked

__all__ = [
    "OF_TEXT",
    "SOURCE_OPTIONS",
    "TABLE_OPTIONS",
    "UNPACKED_NAMES",
    "Option",
    "SourceArguments",
    "option_of",
    "source_options",
    "taken",
    "unpacked_options",
]


OF_TEXT = ("ignore_columns", "label_column")  # that text has, too
TABLE_OPTIONS = ("fields", "root", "key_column", "label_column", "filters", "ignore_columns", "no_header")


def _names(context: click.Context, option: click.Parameter, value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Parse column titles separated by commas; titles that contain a comma are quoted as in CSV: "a,b",c."""
    del context, option
    lines = [] if value is None else [value] if isinstance(value, str) else value
    return tuple(dict.fromkeys(name for line in lines for name in next(csv.reader([line]), [])))


def _filters(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[Filter, ...]:
    """Parse COLUMN=VALUE pairs and expressions; raise UsageError for anything else."""
    del context, option
    if not values:
        return ()
    from fastio.converters.labels.filters import parse_filter

    try:
        return tuple(map(parse_filter, values))
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


Option = Callable[[Callable[..., None]], Callable[..., None]]


def _options(what: str, field: str = "fields") -> tuple[Option, ...]:
    """
    Return the options that say what files are. ``what`` is the argument that names them, ``field`` the parameter that
    --field becomes.
    """
    return (
        click.option(
            "--labels", metavar="FILE", help="Label file of a flat folder: .pkl, .csv, .tsv, .json or .jsonl."
        ),
        click.option(
            "--label-column",
            callback=_names,
            metavar="A[,B...]",
            help=f"Column of FILE or {what} with the labels; several of numbers form a vector.  [default: label, "
            "class, ...; for text none]",
        ),
        click.option(
            "--key-column",
            metavar="NAME",
            help=f"Column of FILE or {what} with the file names.  [default: filename, file_name, ...]",
        ),
        click.option(
            "--filter",
            "filters",
            multiple=True,
            callback=_filters,
            metavar="EXPR",
            help=f'Use only rows of FILE or {what} for which it is true: split=train, or "year >= 2015 and kind in '
            "('dog', 'cat')\"; repeat for more columns, or more values of COLUMN=VALUE.",
        ),
        click.option(
            "--without",
            "ignore_columns",
            multiple=True,
            callback=_names,
            metavar="A[,B...]",
            help=f"Columns of FILE or {what} to leave out, also with pictures in them; repeat for more, * for all that "
            "are not used.",
        ),
        click.option(
            "--no-header", is_flag=True, help=f"FILE or {what} has no header; its columns are called 1, 2, ..."
        ),
        click.option(
            "--field",
            field,
            multiple=True,
            metavar="NAME=WHERE[:TYPE]",
            help="A field of the samples: mask=masks/, caption=text, boxes=objects.bbox:xywh; repeat for more.",
        ),
        click.option(
            "--root",
            metavar="DIR",
            help="Folder that file names in a table are relative to.  [default: the table's own]",
        ),
    )


SOURCE_OPTIONS: tuple[Option, ...] = (
    *_options("SRC"),
    click.option("--many-classes", is_flag=True, help="Accept nearly as many classes as samples."),
    click.option(
        "--dtype",
        type=click.Choice(("uint8", "uint16", "int16", "uint32", "int32", "int64")),
        help="Type of the ids in a .bin of token ids that does not say it.",
    ),
    click.option(
        "--eos-id", type=WholeNumber(min=0), metavar="N", help="The id that ends documents, in a .bin or .npy of ids."
    ),
)


@dataclass(frozen=True, slots=True)
class SourceArguments:
    """The options about labels, columns and fields of SRC as given on the command line, under the options' names."""

    labels: str | None
    label_column: tuple[str, ...]
    key_column: str | None
    filters: tuple[Filter, ...]
    ignore_columns: tuple[str, ...]
    no_header: bool
    fields: tuple[str, ...]
    root: str | None
    many_classes: bool
    dtype: str | None
    eos_id: int | None

    @property
    def of_tables(self) -> list[str]:
        """The names of the options given that ask for columns or files of a table."""
        return [name for name in TABLE_OPTIONS if getattr(self, name)]

    @property
    def label_of_text(self) -> str | None:
        """The column with the labels of text: there is one."""
        if len(self.label_column) > 1:
            raise click.UsageError(f"--label-column {','.join(self.label_column)}: text has one label; name one column")
        return next(iter(self.label_column), None)

    def words(self) -> list[str]:
        """Return the options given, as they are typed."""
        words: list[str] = []
        for name in self.__slots__:
            value, option = getattr(self, name), option_of(name)
            if value is True:
                words.append(option)
            elif name == "filters":
                words += [
                    word for each in value for word in (option, each if isinstance(each, str) else "=".join(each))
                ]
            elif name == "fields":
                words += [word for field in value for word in (option, field)]
            elif isinstance(value, tuple) and value:
                line = io.StringIO()
                csv.writer(line, lineterminator="").writerow(value)
                words += [option, line.getvalue()]
            elif value or (value == 0 and value is not False):
                words += [option, str(value)]
        return words

    def _check_columns(self, kind: SourceKind) -> None:
        """Raise UsageError for options about columns if there is neither a label file nor a table."""
        if self.labels is not None or kind.takes_columns:
            return
        known = ("fields", "root", "dtype", "eos_id", *(("ignore_columns",) if kind.takes_without else ()))
        alone = next((name for name in self.__slots__ if name not in known and getattr(self, name)), None)
        if alone is not None:
            raise click.UsageError(f"{option_of(alone)} needs a label file: add --labels FILE")

    def leaving_out(self, column: str) -> Self:
        """Return these with ``--without COLUMN``."""
        return replace(self, ignore_columns=(*self.ignore_columns, column))

    def recognised(
        self, src: str, kind: str, split: str | None = None, *, about_text: bool = False, remote: Remote | None = None
    ) -> Recognised:
        """
        Answer what SRC, or the part ``split`` of it, is; ``about_text`` says that options were given that only text
        has. ``remote`` says how a URL is read; without it, none is.
        """
        from fastio.store.kinds.recognise import recognise

        return recognise(
            src,
            kind=kind,
            split=split,
            has_fields=bool(self.fields),
            has_labels=self.labels is not None,
            has_root=self.root is not None,
            is_table=bool(self.of_tables),
            about_text=about_text,
            remote=remote,
        )

    def open(
        self,
        src: Recognised,
        fields: Sequence[FieldChoice] | None = None,
        remote: Remote | None = None,
        vocab_size: int | None = None,
        chat: str | None = None,
    ) -> Source:
        """
        Open SRC; ``fields`` replace those given, and ``remote`` says how a label file behind a URL is read.
        ``vocab_size`` is for files of token ids, ``chat`` is the column of chats in a table.
        """
        from fastio.converters import SOURCES, LabelOptions, open_source
        from fastio.converters.fields.types import parse_choice
        from fastio.converters.sources.options import IdOptions
        from fastio.store.files.remote_options import DEFAULT

        columns = LabelOptions(
            label_columns=self.label_column,
            key_column=self.key_column,
            filters=self.filters,
            ignore_columns=self.ignore_columns,
            header=not self.no_header,
            many_classes=self.many_classes,
        )
        choices = [parse_choice(words) for words in self.fields] if fields is None else fields
        source: Source = open_source(
            src,
            labels=self.labels,
            label_options=columns,
            fields=choices,
            root=self.root,
            ids=IdOptions(self.dtype, vocab_size, self.eos_id),
            chat=chat,
            remote=DEFAULT if remote is None else remote,
        )
        self._check_columns(SOURCES[source.kind])
        return source


def option_of(name: str) -> str:
    """Return the option of an argument of this name, as it is typed."""
    option = {"filters": "filter", "fields": "field", "ignore_columns": "without"}.get(name, name)
    return f"--{option.replace('_', '-')}"


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about labels, columns and fields to a command, which gets them as one argument ``arguments``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        command(*args, arguments=taken(options), **options)

    given: Callable[..., None] = with_options
    for option in reversed(SOURCE_OPTIONS):
        given = option(given)
    return given


def taken(options: dict[str, Any]) -> SourceArguments:
    """Take the options about the source out of all options of a command."""
    return SourceArguments(**{name: options.pop(name) for name in SourceArguments.__slots__})


# What an unpacked path is, for the commands that open one where it lies.

UNPACKED_NAMES = (
    *("labels", "label_column", "key_column", "filters", "ignore_columns", "no_header", "field", "root"),
    *("split", "kind"),
)


def unpacked_options(what: str = "PATH") -> Option:
    """
    Add the options of ``pack`` that say what files are to a command that opens them where they lie; it gets them as one
    argument ``unpacked``. ``what`` is the argument that names the files.
    """
    kind = source_kind_option(f"What {what} is, if it is not packed; auto decides by the names in it.", with_text=False)
    split = click.option("--split", metavar="NAME", help=f"Open only the part NAME of {what}: train, val, ...")

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(*args: Any, **options: Any) -> None:
            given = {name: options.pop(name) for name in UNPACKED_NAMES}
            command(*args, unpacked=_unpacked(options.get(what.lower()), **given), **options)

        every: tuple[Option, ...] = (*_options(what, "field"), split, kind)
        with_all: Callable[..., None] = with_options
        for option in reversed(every):
            with_all = option(with_all)
        return with_all

    return add


def _unpacked(
    path: object, *, kind: str, split: str | None, filters: tuple[Filter, ...], no_header: bool, **given: Any
) -> Unpacked:
    from fastio.store.kinds.unpacked import Unpacked

    if isinstance(path, str) and not os.path.isdir(path):  # noqa: PTH112 - may be a URL
        split, filters = split_of(path, split, filters)
    return Unpacked(
        given["labels"],
        fields=given["field"],
        root=given["root"],
        split=split,
        kind=kind,
        label_columns=given["label_column"],
        key_column=given["key_column"],
        filters=[each if isinstance(each, str) else "=".join(each) for each in filters],
        without=given["ignore_columns"],
        header=not no_header,
    )
