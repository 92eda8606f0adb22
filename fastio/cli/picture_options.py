"""The options of ``fastio pack`` for pictures, gathered into one argument."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.whole_number import WholeNumber

if TYPE_CHECKING:
    from fastio.converters import Raw, Source, SourceKind, Transcode
    from fastio.converters.fields_asked import FieldChoice
    from fastio.converters.record_tokens import TextTokens

__all__ = ["TABLE_OPTIONS", "PictureArguments", "SourceArguments", "option_of", "picture_options", "source_options"]

_LONGEST_SIDE = 65_500
_SIDE = WholeNumber(1, _LONGEST_SIDE)
TABLE_OPTIONS = ("fields", "root", "key_column", "label_column", "filters", "ignore_columns", "no_header")
_COMPARISONS = (">", "<", "!", "~")  # that may be meant by width>=400


def _names(context: click.Context, option: click.Parameter, value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Parse column titles separated by commas; titles that contain a comma are quoted as in CSV: "a,b",c."""
    del context, option
    lines = [] if value is None else [value] if isinstance(value, str) else value
    return tuple(dict.fromkeys(name for line in lines for name in next(csv.reader([line]), [])))


def _size(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Parse the height and width of a picture."""
    del context, option
    if value is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})[xX]([1-9][0-9]{0,4})", value)
    if match is None or not max(int(match[1]), int(match[2])) <= _LONGEST_SIDE:
        raise click.BadParameter(f"{value!r}: expected height and width in pixels, as in 224x224")
    return int(match[1]), int(match[2])


def _pairs(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse COLUMN=VALUE pairs; raise UsageError for anything else."""
    del context, option
    for value in values:
        if "=" not in value.strip("="):
            raise click.BadParameter(f"{value!r}: expected COLUMN=VALUE, as in split=train")
        if value.partition("=")[0].endswith(_COMPARISONS):
            raise click.BadParameter(
                f"{value!r}: only COLUMN=VALUE is known, which takes the rows with this very value, as in split=train"
            )
    return tuple((value.partition("=")[0], value.partition("=")[2]) for value in values)


_SOURCE_OPTIONS = (
    click.option("--labels", metavar="FILE", help="Label file of a flat folder: .pkl, .csv, .tsv, .json or .jsonl."),
    click.option(
        "--label-column",
        callback=_names,
        metavar="A[,B...]",
        help="Column of FILE or SRC with the labels; several of numbers form a vector.  [default: label, class, ...]",
    ),
    click.option(
        "--key-column",
        metavar="NAME",
        help="Column of FILE or SRC with the file names.  [default: filename, file_name, ...]",
    ),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        callback=_pairs,
        metavar="COLUMN=VALUE",
        help="Use only rows of FILE or SRC with this value; repeat for more values or columns.",
    ),
    click.option(
        "--without",
        "--ignore-columns",
        "ignore_columns",
        multiple=True,
        callback=_names,
        metavar="A[,B...]",
        help="Columns of FILE or SRC to leave out, also with pictures in them; repeat for more, * for all that are not "
        "used. --ignore-columns is the former name.",
    ),
    click.option("--no-header", is_flag=True, help="FILE or SRC has no header; its columns are called 1, 2, ..."),
    click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="NAME=WHERE[:TYPE]",
        help="A field of the samples: mask=masks/, caption=text, boxes=objects.bbox:xywh; repeat for more.",
    ),
    click.option(
        "--root", metavar="DIR", help="Folder that file names in a table are relative to.  [default: the table's own]"
    ),
    click.option("--many-classes", is_flag=True, help="Accept nearly as many classes as samples."),
)

_OPTIONS = (
    *_SOURCE_OPTIONS,
    click.option(
        "--restart",
        type=WholeNumber(0, 65_535),
        metavar="K",
        help="Write JPEGs with a restart marker every K MCUs (8 works well): same pixels, but crops decode "
        "faster. Resized pictures have one every 8 MCUs by default; 0 turns that off.",
    ),
    click.option("--short-side", type=_SIDE, metavar="N", help="Shrink larger pictures to this short side, as JPEG."),
    click.option("--max-side", type=_SIDE, metavar="N", help="Shrink larger pictures to this long side, as JPEG."),
    click.option(
        "--resize",
        callback=_size,
        metavar="HxW",
        help="Resize all pictures to this height and width: JPEGs stay JPEGs, others become PNG; with --raw, "
        "RGB pixels.",
    ),
    click.option(
        "--quality", type=WholeNumber(1, 100), metavar="Q", help="JPEG quality of resized pictures.  [default: 90]"
    ),
    click.option(
        "--subsampling",
        type=click.Choice(("4:2:0", "4:2:2", "4:4:4")),
        help="Colour subsampling of resized JPEGs.  [default: 4:2:0]",
    ),
    click.option(
        "--raw",
        is_flag=True,
        help="Store decoded pixels instead of files, for small pictures of one size (see --resize).",
    ),
    click.option(
        "--jump/--no-jump",
        default=None,
        help="Note in the index (about 1 % more bytes) where to start within each JPEG of 8 KiB and more: files stay "
        "as they are, crops decode faster, damaged files are found.  [default: jump; for --resume and --part, as "
        "the shards that are there]",
    ),
    click.option(
        "--shuffle",
        type=WholeNumber(0),
        metavar="SEED",
        help="Store the samples in a random order, drawn from their names and SEED.",
    ),
)


@dataclass(frozen=True, slots=True)
class SourceArguments:
    """The options about labels, columns and fields of SRC as given on the command line, under the options' names."""

    labels: str | None
    label_column: tuple[str, ...]
    key_column: str | None
    filters: tuple[tuple[str, str], ...]
    ignore_columns: tuple[str, ...]
    no_header: bool
    fields: tuple[str, ...]
    root: str | None
    many_classes: bool

    @property
    def of_tables(self) -> list[str]:
        """The names of the options given that ask for columns or files of a table."""
        return [name for name in TABLE_OPTIONS if getattr(self, name)]

    def words(self) -> list[str]:
        """Return the options given, as they are typed."""
        words: list[str] = []
        for name in self.__slots__:
            value, option = getattr(self, name), option_of(name)
            if value is True:
                words.append(option)
            elif name == "filters":
                words += [word for pair in value for word in (option, "=".join(pair))]
            elif name == "fields":
                words += [word for field in value for word in (option, field)]
            elif isinstance(value, tuple) and value:
                line = io.StringIO()
                csv.writer(line, lineterminator="").writerow(value)
                words += [option, line.getvalue()]
            elif value:
                words += [option, value]
        return words

    def _check_columns(self, kind: SourceKind) -> None:
        """Raise UsageError for options about columns if there is neither a label file nor a table."""
        if self.labels is not None or kind.takes_columns:
            return
        known = ("ignore_columns", "fields", "root") if kind.takes_without else ("fields", "root")
        alone = next((name for name in self.__slots__ if name not in known and getattr(self, name)), None)
        if alone is not None:
            raise click.UsageError(f"{option_of(alone)} needs a label file: add --labels FILE")

    def open(self, src: str, kind: str, fields: Sequence[FieldChoice] | None = None) -> Source:
        """Open SRC; ``fields`` replace those given."""
        from fastio.converters import SOURCES, LabelOptions, open_source
        from fastio.converters.fields_asked import parse_choice

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
            src, kind=kind, labels=self.labels, label_options=columns, fields=choices, root=self.root
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
        command(*args, arguments=_taken(options), **options)

    for option in reversed(_SOURCE_OPTIONS):
        with_options = option(with_options)
    return with_options


def _taken(options: dict[str, Any]) -> SourceArguments:
    """Take the options about the source out of all options of a command."""
    return SourceArguments(**{name: options.pop(name) for name in SourceArguments.__slots__})


@dataclass(frozen=True, slots=True)
class PictureArguments:
    """The options about pictures as given on the command line, under the options' names."""

    of_source: SourceArguments
    restart: int | None
    short_side: int | None
    max_side: int | None
    resize: tuple[int, int] | None
    quality: int | None
    subsampling: Literal["4:2:0", "4:2:2", "4:4:4"] | None
    raw: bool
    jump: bool | None
    shuffle: int | None
    tokens: TextTokens | None  # from the options about text

    def check(self) -> None:
        """Raise UsageError for options that exclude each other."""
        sizes = {"--short-side": self.short_side, "--max-side": self.max_side, "--resize": self.resize}
        sides = [name for name, value in sizes.items() if value]
        if len(sides) > 1:
            raise click.UsageError(f"{' and '.join(sides)} set different sizes: give one of them")
        if self.restart == 0 and not sides:
            raise click.UsageError("--restart 0 is for resized pictures: add --short-side, --max-side or --resize")
        if self.raw and (self.short_side or self.max_side or self.restart is not None):
            raise click.UsageError("--raw keeps pixels, the other options make JPEGs: give one of them")
        for name, value in (("--quality", self.quality), ("--subsampling", self.subsampling)):
            if value is not None and (not sides or self.raw):
                raise click.UsageError(f"{name} is for resized JPEGs: add --short-side, --max-side or --resize")

    def chosen(self) -> Transcode | Raw | None:
        """Return how to change the pictures, or None to keep them unchanged."""
        from fastio.converters import Raw, Transcode

        if self.raw:
            return Raw(self.resize)
        if not (self.restart or self.short_side or self.max_side or self.resize):
            return None
        return Transcode(
            restart=self.restart or 0,
            resized_restart=8 if self.restart is None else self.restart,
            short_side=self.short_side,
            max_side=self.max_side,
            resize=self.resize,
            quality=self.quality or 90,
            subsampling=self.subsampling or "4:2:0",
        )

    def source(self, src: str, kind: str) -> Source:
        """Open SRC, in the order in which to store it."""
        if self.tokens is None:
            source = self.of_source.open(src, kind)
        else:
            from fastio.converters.fields_asked import parse_choice
            from fastio.converters.tokenized_source import TokenizedSource, as_text

            choices, of_tokens = as_text([parse_choice(words) for words in self.of_source.fields])
            source = TokenizedSource(self.of_source.open(src, kind, choices), of_tokens, self.tokens)
        return source if self.shuffle is None else source.shuffled(self.shuffle)


def picture_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``pictures``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        options["of_source"] = _taken(options)
        pictures = PictureArguments(**{name: options.pop(name) for name in PictureArguments.__slots__})
        pictures.check()
        command(*args, pictures=pictures, **options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
