"""``fastio ls``, ``show`` and ``unpack``: a store's samples as a list, a picture, and files."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.group import Sections
from fastio.cli.options import BESIDE_NAMES, REMOTE_NAMES, beside_options, max_pixels_option, remote_options
from fastio.cli.screen import meter, printable, problem_table
from fastio.cli.source_options import UNPACKED_NAMES, unpacked_options
from fastio.errors import FastioError
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from fastio.store import SampleStore
    from fastio.store.beside.joined import Beside
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.unpacked import Unpacked
    from fastio.types.schema import Field

__all__ = [
    "ls",
    "show",
    "unpack",
]


_STEP = 4096
_PREVIEW = 60  # characters shown of a text
_FIELD_PREVIEW = 32  # of each of many fields


_SECTIONS = {
    "Stores beside PATH": BESIDE_NAMES,
    "PATH that is not packed": UNPACKED_NAMES,
    "PATH behind a URL": REMOTE_NAMES,
}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path")
@click.argument("pattern", required=False)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@unpacked_options()
@beside_options
@remote_options
@click.pass_context
def ls(
    ctx: click.Context,
    path: str,
    pattern: str | None,
    *,
    limit: int | None,
    as_json: bool,
    unpacked: Unpacked,
    beside: Beside,
    remote: Remote,
) -> None:
    """
    List the samples of the store PATH. Shows index, size in bytes, label or class, key, and the beginning of a text.
    PATH may also be files that are not packed, which the options of fastio pack describe.

    Of samples with many fields, it shows the beginning of text, JSON, token ids and boxes, and the columns; --json
    has their values.

    PATTERN selects keys by shell wildcards: *, ?, [abc].

    The exit code is 1 if no key matches PATTERN.

    \b
    Example:
      fastio ls train.lmdb --limit 10
      fastio ls train.lmdb 'dog/*.jpg'
      fastio ls train.lmdb --beside captions.h5
      fastio ls ./pngs --labels labels.csv
    """
    with beside.open(path, remote=remote, unpacked=unpacked) as store:
        any_line = False
        for lines in _lines(store, pattern, limit, as_json=as_json):
            any_line = True
            click.echo("\n".join(lines))
    if pattern and not any_line and limit != 0:
        click.echo(f"{printable(path)}: no key of {counted(len(store), 'sample')} matches {pattern!r}", err=True)
        ctx.exit(1)


def _lines(store: SampleStore, pattern: str | None, limit: int | None, *, as_json: bool) -> Iterator[list[str]]:
    """Yield the lines, some thousand at a time."""
    import numpy as np

    from fastio.store.protocol import value_spans
    from fastio.types.spans import firsts_of, sums_of

    wanted = re.compile(fnmatch.translate(pattern)).match if pattern else None
    reads = _reader(store)
    labels = store.column("label") if "label" in store.schema else None
    classes: list[Any] = store.metadata.get("classes") or []
    left = len(store) if limit is None else limit
    width = len(str(max(len(store) - 1, 0)))
    for start in range(0, len(store), _STEP):
        if left <= 0:
            return
        indices = np.arange(start, min(start + _STEP, len(store)))
        sizes = np.zeros(len(indices), np.int64)
        for field in store.schema.payload:
            spans, counts = value_spans(store, field.name, indices, checksums=False)
            sizes += spans.sizes if counts is None else sums_of(firsts_of(counts), spans.sizes)
        values = [None] * len(indices) if labels is None else labels[indices].tolist()
        rows = zip(indices.tolist(), store.keys(indices), sizes.tolist(), values, strict=True)
        matching = [row for row in rows if wanted is None or wanted(row[1])][:left]
        left -= len(matching)
        if not matching:
            continue
        if as_json:
            from fastio.measure.report.page import finite

            yield [json.dumps(finite(_sample_form(row, classes) | reads(row[0], json=True))) for row in matching]
        else:
            yield [
                f"{index:>{width}}  {size:>10}  {printable(_named(value, classes)):<16}  {printable(key)}"
                + "".join(f"  {printable(text)}" for text in reads(index, json=False))
                for index, key, size, value in matching
            ]


def _reader(store: SampleStore) -> Callable[..., Any]:
    """
    Return a function from a sample's index to what it holds: the beginnings in words, or with ``json`` entries by name.
    """
    from fastio.dataset.form import has_many_fields
    from fastio.types.schema import text_field

    if has_many_fields(store):
        return _fields_reader(store)
    field = text_field(store.schema)
    return _text_reader(store, field) if field is not None else lambda index, *, json: {} if json else ()


def _text_reader(store: SampleStore, field: Field) -> Callable[..., Any]:
    import numpy as np

    from fastio.converters.text.decode import StoredText
    from fastio.store.protocol import read_values

    stored = StoredText.of(store, field)

    def read(index: int, *, json: bool) -> Any:
        value = read_values(store, field.name, np.array([index])).view(0)
        text = stored.preview(value, max(len(value), 1) if json else _PREVIEW)
        return {"text": text} if json else (text,)

    return read


def _fields_reader(store: SampleStore) -> Callable[..., Any]:
    from fastio.converters.inspect.sample_words import json_values, value_words

    shown = [field for field in store.schema.fields if _is_shown(field)]

    def read(index: int, *, json: bool) -> Any:
        if json:
            return {"fields": json_values(store, index)}
        return [f"{name}: {words}" for name, words in value_words(store, index, shown, width=_FIELD_PREVIEW).items()]

    return read


def _is_shown(field: Field) -> bool:
    """Whether the beginning of a value says something: not of pictures, embeddings and bytes."""
    traits = field.traits
    is_short = field.is_column or field.is_list or traits.is_sequence or traits.is_json or traits.is_ragged
    is_short |= traits.is_npy  # whose shape says something
    return is_short and field.name != "label"


def _named(value: Any, classes: list[Any]) -> str:
    if value is None:
        return "-"
    return str(classes[value]) if classes and 0 <= value < len(classes) else str(value)


def _sample_form(row: tuple[int, str, int, Any], classes: list[Any]) -> dict[str, Any]:
    index, key, size, value = row
    form: dict[str, Any] = {"index": index, "key": key, "size_bytes": size}
    if value is not None:
        form |= {"label": value, "class": _named(value, classes) if classes else None}
    return form


# ``fastio show``: draws a contact sheet of a store.


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path")
@click.option("-o", "--out", default="contact_sheet.png", show_default=True, metavar="FILE", help="PNG file to write.")
@click.option(
    "--count",
    type=click.IntRange(1, 2000),
    metavar="N",
    default=40,
    show_default=True,
    help="How many samples to draw.",
)
@click.option(
    "--columns", type=click.IntRange(1, 100), metavar="N", default=8, show_default=True, help="How many per row."
)
@click.option(
    "--size",
    type=click.IntRange(32, 1024),
    metavar="N",
    default=128,
    show_default=True,
    help="Width and height of each picture in pixels.",
)
@click.option(
    "--seed",
    type=int,
    metavar="SEED",
    help="Choose samples at random; without it, they are spread evenly over the store.",
)
@max_pixels_option
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@unpacked_options()
@beside_options
@remote_options
def show(  # noqa: PLR0913 - an option each
    path: str,
    *,
    out: str,
    count: int,
    columns: int,
    size: int,
    seed: int | None,
    overwrite: bool,
    unpacked: Unpacked,
    beside: Beside,
    remote: Remote,
) -> None:
    """
    Draw pictures of the store PATH with their labels. Writes a contact sheet as a PNG. PATH may also be files that are
    not packed, which the options of fastio pack describe.

    Masks, boxes and points of the same samples are drawn over the pictures.

    \b
    Example:
      fastio show train.lmdb -o sheet.png --count 60 --seed 1
      fastio show ./yolo --split train
    """
    from fastio.converters.inspect.contact_sheet import contact_sheet

    if Path(out).suffix.lower() != ".png":
        raise FastioError(f"{out}: the contact sheet is a PNG: choose a name that ends in .png")
    if not Path(out).parent.is_dir():
        raise FastioError(f"{out}: the folder {Path(out).parent} does not exist; create it first")
    if os.path.lexists(out) and not overwrite:
        raise FastioError(f"{out}: exists; choose another name with -o, or --overwrite")
    with beside.open(path, remote=remote, unpacked=unpacked) as store:
        sheet, problems = contact_sheet(store, count=count, columns=columns, size=size, seed=seed)
    partial = Path(out).with_name(f".{Path(out).name}.partial-{os.getpid()}")
    try:
        sheet.save(partial, format="PNG")
        partial.replace(out)
    except OSError as exc:
        reason = exc.strerror or exc
        raise FastioError(f"{out}: cannot be written ({reason}); free space, or choose another place with -o") from exc
    finally:
        with suppress(OSError):  # a folder that refuses new files has none to remove
            partial.unlink(missing_ok=True)
    click.echo(f"{out}: {sheet.width} x {sheet.height} pixels")
    if problems:
        first = f"{printable(problems[0].key)}: {printable(problems[0].problem)}"
        verb = "is" if len(problems) == 1 else "are"
        click.echo(
            f"warning: {number(len(problems))} of the samples shown {verb} damaged, "
            f"e.g. {first}; `fastio verify` lists all",
            err=True,
        )


# ``fastio unpack``: gets the packed files back out of a store.


@click.command()
@click.argument("path")
@click.argument("out")
@click.option("--labels", metavar="FILE", help="Also write the labels: .csv, .tsv, .json or .jsonl.")
@click.option(
    "--as",
    "form",
    type=click.Choice(("files", "bin", "megatron")),
    default="files",
    show_default=True,
    help="Write what was packed; or all token ids as one row, OUT.bin, or with Megatron's OUT.idx beside it.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist; others in OUT are left alone.")
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="Stop at a damaged sample or a name that is too long, or leave it out and list it.",
)
@remote_options
def unpack(
    path: str,
    out: str,
    *,
    labels: str | None,
    form: Literal["files", "bin", "megatron"],
    overwrite: bool,
    on_error: Literal["raise", "skip"],
    remote: Remote,
) -> None:
    """
    Write the files of the store PATH into the folder OUT. Each is byte for byte what was packed.

    Token ids are decoded into a .txt file or a folder of them; rows of a table become a .jsonl file, boxes of any
    layout a COCO JSON.

    \b
    Example:
      fastio unpack train.lmdb ./again
      diff -r ./pngs ./again
      fastio unpack damaged.lmdb ./rescued --on-error skip
      fastio unpack corpus.lmdb train.bin --as bin
    """
    from fastio.converters.inspect.token_files import unpack_tokens
    from fastio.converters.inspect.unpack import unpack as run
    from fastio.store.beside.joined import open_with_fields, stores_of

    with open_with_fields(path, remote=remote) as store, meter("unpacking", len(store)) as progress:
        if form == "files":
            report = run(store, out, overwrite=overwrite, labels=labels, on_error=on_error, progress=progress)
        else:
            if labels is not None or on_error == "skip":
                raise click.UsageError(f"--as {form} writes all ids: drop {'--labels' if labels else '--on-error'}")
            report = unpack_tokens(stores_of(store)[0], out, form=form, overwrite=overwrite, progress=progress)
    if report.skipped:
        problem_table([(problem.key, problem.problem) for problem in report.skipped])
    left_out = f"; {counted(len(report.skipped), 'sample')} left out (listed above)" if report.skipped else ""
    click.echo(f"{out}: {counted(report.files, 'file')}, {size(report.size_bytes)}{left_out}")
    for note in report.notes:
        click.echo(f"note: {note}")
