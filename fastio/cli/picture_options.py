"""The options of ``fastio pack`` that are about pictures, gathered into one argument."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from fastio.converters import LabelOptions, Raw, Source, Transcode

__all__ = ["PictureArguments", "picture_options"]

_LONGEST_SIDE = 65_500
_SIDE = click.IntRange(1, _LONGEST_SIDE)


def _names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Titles of columns with commas between; those that contain one are written as in a table: "a,b",c."""
    del context, option
    return () if value is None else tuple(next(csv.reader([value]), []))


def _size(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Height and width of a picture."""
    del context, option
    if value is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})[xX]([1-9][0-9]{0,4})", value)
    if match is None or not max(int(match[1]), int(match[2])) <= _LONGEST_SIDE:
        raise click.BadParameter(f"{value!r}: expected height and width in pixels, as in 224x224")
    return int(match[1]), int(match[2])


def _pairs(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Columns and values; UsageError for what is no pair."""
    del context, option
    for value in values:
        if "=" not in value.strip("="):
            raise click.BadParameter(f"{value!r}: expected COLUMN=VALUE, as in split=train")
    return tuple((value.partition("=")[0], value.partition("=")[2]) for value in values)


_OPTIONS = (
    click.option("--labels", metavar="FILE", help="Label file of a flat folder: .pkl, .csv, .tsv, .json or .jsonl."),
    click.option(
        "--label-column",
        callback=_names,
        metavar="A[,B...]",
        help="Column of FILE with the labels; several columns of numbers make a vector.  [default: label, class, ...]",
    ),
    click.option(
        "--key-column", metavar="NAME", help="Column of FILE with the file names.  [default: filename, file_name, ...]"
    ),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        callback=_pairs,
        metavar="COLUMN=VALUE",
        help="Only rows of FILE with this value; again for another value or column.",
    ),
    click.option(
        "--ignore-columns",
        callback=_names,
        metavar="A[,B...]",
        help="Columns of FILE that are left out, * for all others.  [default: refuse what is not used]",
    ),
    click.option("--no-header", is_flag=True, help="FILE has no titles; its columns are called 1, 2, ..."),
    click.option("--many-classes", is_flag=True, help="Nearly as many classes as samples are meant."),
    click.option(
        "--restart",
        type=click.IntRange(0, 65_535),
        metavar="K",
        help="JPEGs with a restart marker every K MCUs: the same pixels, crops decode faster. 8 is a good K. Pictures "
        "made smaller have them every 8 anyway; 0: these neither.",
    ),
    click.option("--short-side", type=_SIDE, metavar="N", help="Make larger pictures JPEGs of this short side."),
    click.option("--max-side", type=_SIDE, metavar="N", help="Make larger pictures JPEGs of this long side."),
    click.option(
        "--resize",
        callback=_size,
        metavar="HxW",
        help="Make all pictures this high and wide: JPEGs stay JPEGs, others become PNG; with --raw, RGB pixels.",
    ),
    click.option("--quality", type=click.IntRange(1, 100), metavar="Q", help="Of JPEGs resized.  [default: 90]"),
    click.option(
        "--subsampling", type=click.Choice(("4:2:0", "4:2:2", "4:4:4")), help="Of their colours.  [default: 4:2:0]"
    ),
    click.option(
        "--raw", is_flag=True, help="Decoded pixels instead of files, for small pictures of one size (see --resize)."
    ),
    click.option(
        "--shuffle", type=click.IntRange(0), metavar="SEED", help="Store samples in an order drawn from names and SEED."
    ),
)


@dataclass(frozen=True, slots=True)
class PictureArguments:
    """What was said of pictures on the command line; the names are those of the options."""

    labels: str | None
    label_column: tuple[str, ...]
    key_column: str | None
    filters: tuple[tuple[str, str], ...]
    ignore_columns: tuple[str, ...]
    no_header: bool
    many_classes: bool
    restart: int | None
    short_side: int | None
    max_side: int | None
    resize: tuple[int, int] | None
    quality: int | None
    subsampling: Literal["4:2:0", "4:2:2", "4:4:4"] | None
    raw: bool
    shuffle: int | None

    def check(self) -> None:
        """UsageError for options that do not go together."""
        of_labels = {
            "--label-column": self.label_column,
            "--key-column": self.key_column,
            "--filter": self.filters,
            "--ignore-columns": self.ignore_columns,
            "--no-header": self.no_header,
            "--many-classes": self.many_classes,
        }
        alone = next((name for name, value in of_labels.items() if value and self.labels is None), None)
        if alone is not None:
            raise click.UsageError(f"{alone} is about a label file: say --labels FILE too")
        sizes = {"--short-side": self.short_side, "--max-side": self.max_side, "--resize": self.resize}
        sides = [name for name, value in sizes.items() if value]
        if len(sides) > 1:
            raise click.UsageError(f"{' and '.join(sides)} say different sizes: say one of them")
        if self.restart == 0 and not sides:
            raise click.UsageError("--restart 0 is of resized pictures: say --short-side, --max-side or --resize too")
        if self.raw and (self.short_side or self.max_side or self.restart is not None):
            raise click.UsageError("--raw keeps pixels, the other options make JPEGs: say one of them")
        for name, value in (("--quality", self.quality), ("--subsampling", self.subsampling)):
            if value is not None and (not sides or self.raw):
                raise click.UsageError(f"{name} is of resized JPEGs: say --short-side, --max-side or --resize too")

    def label_options(self) -> LabelOptions:
        """How the label file is to be read."""
        from fastio.converters import LabelOptions

        return LabelOptions(
            label_columns=self.label_column,
            key_column=self.key_column,
            filters=self.filters,
            ignore_columns=self.ignore_columns,
            header=not self.no_header,
            many_classes=self.many_classes,
        )

    def chosen(self) -> Transcode | Raw | None:
        """What is to become of the pictures; None: they are kept as they are."""
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

    def source(self, src: str, layout: str) -> Source:
        """SRC, opened, in the order in which it is to be stored."""
        from fastio.converters import open_source

        source = open_source(src, layout=layout, labels=self.labels, label_options=self.label_options())
        return source if self.shuffle is None else source.shuffled(self.shuffle)


def picture_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, as one argument ``pictures``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        pictures = PictureArguments(**{name: options.pop(name) for name in PictureArguments.__slots__})
        pictures.check()
        command(*args, pictures=pictures, **options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
