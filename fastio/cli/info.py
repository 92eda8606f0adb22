"""``fastio info``: what a store holds, and how to read it without fastio."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.epoch_line import epoch_facts, epoch_line
from fastio.cli.group import Sections
from fastio.cli.info_source import SourceAsked, describe_path, print_source
from fastio.cli.options import REMOTE_NAMES, remote_options
from fastio.cli.pack_options import SourceArguments, source_options
from fastio.cli.result import html_option, print_page, wants_html, write_html
from fastio.cli.screen import printable, problem_table
from fastio.cli.source_kind import source_kind_option
from fastio.types.units import number

if TYPE_CHECKING:
    from PIL.Image import Image

    from fastio.measure.report.page import PictureGrid
    from fastio.store import SampleStore
    from fastio.store.files.remote_options import Remote

__all__ = [
    "info",
    "sample_pictures",
]


_SECTIONS = {
    "Options": ("as_json", "only_skipped", "build", "html"),
    "Of a PATH that is not packed yet": (
        "kind",
        "split",
        *SourceArguments.__slots__,
        "text_column",
    ),
    "PATH behind a URL": REMOTE_NAMES,
}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--skipped", "only_skipped", is_flag=True, help="List what packing left out, and why.")
@click.option("--build", is_flag=True, help="Show how the native core was built; takes no PATH.")
@source_kind_option("What a PATH that is not packed yet is, as for fastio pack.", with_text=True)
@click.option("--split", metavar="NAME", help="Describe only the part NAME of PATH: train, val, ...")
@click.option(
    "--text-column", metavar="NAME", help="Describe PATH as text alone: the column with the text, or with token ids."
)
@source_options
@remote_options
@html_option
def info(  # noqa: PLR0913 - an option each
    path: str | None,
    *,
    as_json: bool,
    only_skipped: bool,
    build: bool,
    kind: str,
    split: str | None,
    text_column: str | None,
    arguments: SourceArguments,
    remote: Remote,
) -> None:
    """
    Describe the store PATH, or a source that is not packed yet. Of a store it shows fields, classes, sizes, and how to
    read it without fastio; of a source what its samples would be, and the command that packs it. Options about labels,
    columns, fields and text are those of fastio pack.

    \b
    Example:
      fastio info train.lmdb
      fastio info train.lmdb --skipped
      fastio info train.parquet
      fastio info captions.jsonl --root ./photos
      fastio info train.lmdb --json | jq .samples
    """
    if build and wants_html():
        raise click.UsageError("--html needs a store: drop --build")
    if build:
        from fastio import _native

        build_info = _native.build_info()
        click.echo(
            json.dumps(build_info, indent=2) if as_json else "\n".join(f"{k}: {v}" for k, v in build_info.items())
        )
        return
    if path is None:
        raise click.UsageError("expected PATH or --build")
    asked = SourceAsked(path, kind, split, text_column, arguments)
    opened = None if asked.words() else _opened(path, remote)
    if opened is None:
        if only_skipped or wants_html():
            raise click.UsageError(f"{path} is not packed yet: --skipped and --html are for stores")
        print_source(describe_path(asked), as_json=as_json)
        return
    from fastio.converters.inspect.describe import describe
    from fastio.measure.report.store import store_page

    with opened as store:
        described = {**describe(store), "epoch": epoch_facts(store)}
        page = store_page(
            described,
            epoch=epoch_line(described["epoch"], described["size_bytes"]),
            pictures=sample_pictures(store) if wants_html() else None,
        )
    write_html(lambda: page)
    if as_json:
        click.echo(json.dumps(described["ledger"] if only_skipped else described, indent=2))
    elif only_skipped:
        _print_ledger(described)
    else:
        print_page(page)


def _opened(path: str, remote: Remote) -> SampleStore | None:
    """Open a store; None if ``path`` is none and not named like one, or if it is a source of another kind."""
    from fastio.errors import StoreCorrupt, StoreError
    from fastio.store import open_store
    from fastio.store.files.local import is_local
    from fastio.store.formats import names_store
    from fastio.store.sets.names import SET_SUFFIX

    if is_local(path) and os.path.exists(path) and not names_store(path):  # noqa: PTH110 - also for what is no path
        return None
    try:
        return open_store(path, remote=remote)
    except StoreCorrupt:  # it has a seal of fastio's
        raise
    except StoreError:
        if not is_local(path) or path.endswith(SET_SUFFIX):
            raise
        if not _may_be_source(path):
            raise
        return None


def _may_be_source(path: str) -> bool:
    """Return whether what is no store may be a source: it is not named like a store, or it is of a known kind."""
    from fastio.errors import SourceError
    from fastio.store.formats import names_store
    from fastio.store.kinds.recognise import recognise
    from fastio.store.kinds.registry import STORE

    try:
        return recognise(path, is_table=True).kind is not STORE
    except SourceError:  # which says more than that it is no store, unless it is named like one
        return not names_store(path)


def _print_ledger(report: dict[str, Any]) -> None:
    """Print everything that was left out, grouped by when that happened."""
    from fastio.measure.report.store import LEDGERS

    for name, entries in report["ledger"].items():
        click.echo(f"{number(len(entries))} {LEDGERS[name]}:")
        problem_table([(entry["key"], entry["problem"]) for entry in entries])
    if not report["ledger"]:
        click.echo(f"{printable(report['path'])}: nothing was skipped")


# Sample pictures of a store with their labels, for a report.

_SIZE = 128


def sample_pictures(store: SampleStore, *, count: int = 36) -> PictureGrid | None:
    """
    Return up to ``count`` pictures, spread evenly over the store, with their labels and keys; None if it has none.

    A picture that is damaged comes as the reason instead.
    """
    from fastio.converters.inspect.contact_sheet import shown_samples
    from fastio.measure.report.page import Picture, PictureGrid

    if len(store) == 0 or store.schema.picture is None:
        return None
    samples = shown_samples(store, count=count, size=_SIZE)
    shown = [
        Picture(None, sample.picture, sample.key)
        if isinstance(sample.picture, str)
        else Picture(_jpeg(sample.picture), sample.label, sample.key)
        for sample in samples
    ]
    return PictureGrid(shown, _SIZE)


def _jpeg(picture: Image) -> bytes:
    coded = io.BytesIO()
    picture.save(coded, "JPEG", quality=90, subsampling=0)
    return coded.getvalue()
