"""The options of ``fastio pack`` for pictures, gathered into one argument."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.whole_number import WholeNumber

if TYPE_CHECKING:
    from fastio.converters import LabelOptions, Raw, Source, SourceKind, Transcode
    from fastio.converters.record_tokens import TextTokens
    from fastio.types.schema import Field

__all__ = ["PictureArguments", "picture_options"]

_LONGEST_SIDE = 65_500
_SIDE = WholeNumber(1, _LONGEST_SIDE)


def _names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse column titles separated by commas; titles that contain a comma are quoted as in CSV: "a,b",c."""
    del context, option
    return () if value is None else tuple(next(csv.reader([value]), []))


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
    return tuple((value.partition("=")[0], value.partition("=")[2]) for value in values)


_OPTIONS = (
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
        "--ignore-columns",
        callback=_names,
        metavar="A[,B...]",
        help="Columns of FILE or SRC to leave out; * for all that are not used.",
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
class PictureArguments:
    """The options about pictures as given on the command line, under the options' names."""

    labels: str | None
    label_column: tuple[str, ...]
    key_column: str | None
    filters: tuple[tuple[str, str], ...]
    ignore_columns: tuple[str, ...]
    no_header: bool
    fields: tuple[str, ...]
    root: str | None
    many_classes: bool
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

    def _check_columns(self, kind: SourceKind) -> None:
        """Raise UsageError for options about columns if there is neither a label file nor a table."""
        if self.labels is not None or kind.takes_columns:
            return
        of_labels = {
            "--label-column": self.label_column,
            "--key-column": self.key_column,
            "--filter": self.filters,
            "--ignore-columns": self.ignore_columns,
            "--no-header": self.no_header,
            "--many-classes": self.many_classes,
        }
        alone = next((name for name, value in of_labels.items() if value), None)
        if alone is not None:
            raise click.UsageError(f"{alone} needs a label file: add --labels FILE")

    def label_options(self) -> LabelOptions:
        """Return how to read the label file."""
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
        from fastio.converters import SOURCES, open_source
        from fastio.converters.fields_asked import parse_choice

        choices = [parse_choice(words) for words in self.fields]
        of_tokens: dict[str, Field] = {}
        if self.tokens is not None:
            from fastio.converters.tokenized_source import as_text

            choices, of_tokens = as_text(choices)
        source: Source = open_source(
            src,
            kind=kind,
            labels=self.labels,
            label_options=self.label_options(),
            fields=choices,
            root=self.root,
        )
        self._check_columns(SOURCES[source.kind])
        if self.tokens is not None:
            from fastio.converters.tokenized_source import TokenizedSource

            source = TokenizedSource(source, of_tokens, self.tokens)
        return source if self.shuffle is None else source.shuffled(self.shuffle)


def picture_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``pictures``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        pictures = PictureArguments(**{name: options.pop(name) for name in PictureArguments.__slots__})
        pictures.check()
        command(*args, pictures=pictures, **options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
