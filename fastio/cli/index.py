"""``fastio index``: adds start points to a store that exists, and makes tar shards of other tools a set."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import printable, steps
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions
    from fastio.store.foreign_index import IndexReport

__all__ = ["index"]

_NAMED = 5  # damaged pictures in a line


@click.command()
@click.argument("path")
@click.option("--to", "folder", metavar="DIR", help="Keep a set object there, and nothing beside PATH.")
@click.option("--overwrite", is_flag=True, help="Replace a set object of this name in DIR.")
@click.option(
    "--jump/--no-jump",
    default=True,
    show_default=True,
    help="Note where to start within each JPEG (about 1 % of its bytes), so that crops decode faster.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
def index(path: str, folder: str | None, *, overwrite: bool, jump: bool, as_json: bool, remote: RemoteOptions) -> None:
    """
    Add start points to a store, or index tar shards of other tools.

    PATH is a store, a file or URL, a pattern (x-*.tar, x-%06d.tar), a range (x-{000000..000009}.tar) or a folder. All
    bytes are read once and stay where they are, unchanged. The start points of a file go beside it, into
    x.lmdb.fastio-index, those of a set into its next set object; both are used from then on, whenever the store is
    opened.

    With --to, a set object in DIR lists the files where they lie, with a checksum of every value, and opens like any
    store: for folders that cannot be written, and for shards behind URLs. Shards in DIR itself are listed by name, so
    that the folder can be moved; others by their whole path or URL.

    \b
    Example:
      fastio index photos.lmdb
      fastio index 's3://bucket/x-{000000..000009}.tar' --to ./index
      fastio bench io ./index/x.fastio-set
    """
    from fastio.store.indexing import index_store
    from fastio.store.set_names import SET_SUFFIX

    if folder is not None and folder.endswith(SET_SUFFIX):
        raise click.UsageError(f"--to {folder}: expected a folder; the set object in it is named after the shards")
    with nullcontext(lambda done, total: None) if as_json else steps("indexing") as progress:
        report = index_store(path, folder, options=remote, overwrite=overwrite, jump=jump, progress=progress)
    if as_json:
        echo_json("index", dataclasses.asdict(report))
        return
    for line in _lines(report, has_jump=jump):
        click.echo(printable(line))


def _lines(report: IndexReport, *, has_jump: bool) -> list[str]:
    shards = f"{counted(report.samples, 'sample')} in {counted(report.shards, 'shard')}, {size(report.size_bytes)}"
    lines = [f"{report.path}: {shards}"]
    if has_jump:
        why = "" if report.start_points else ": they are small, progressive, damaged, no JPEGs, or have restart markers"
        lines.append(f"start points within {counted(report.start_points, 'picture')}{why}")
    if report.damaged:
        stay = "stays" if len(report.damaged) == 1 else "stay"
        keys = ", ".join(report.damaged[:_NAMED]) + (", ..." if len(report.damaged) > _NAMED else "")
        damaged = counted(len(report.damaged), "damaged JPEG")
        lines.append(f"{damaged}, which {stay} as packed, without start points: {keys}")
    return lines
