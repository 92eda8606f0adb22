"""``fastio index``: makes tar shards of other tools a set, where they lie."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["index"]


@click.command()
@click.argument("path")
@click.option("--to", "folder", required=True, metavar="DIR", help="Where the set object goes.")
@click.option("--overwrite", is_flag=True, help="Replace a set object of this name.")
@click.option(
    "--jump/--no-jump",
    default=True,
    show_default=True,
    help="Note where to start within each JPEG (about 1 % of its bytes), so that crops decode faster.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
def index(path: str, folder: str, *, overwrite: bool, jump: bool, as_json: bool, remote: RemoteOptions) -> None:
    """
    Index tar shards of other tools, such as WebDataset's.

    PATH is a file or URL, a pattern (x-*.tar, x-%06d.tar), a range (x-{000000..000009}.tar) or a folder. All bytes are
    read once; the shards stay where they are, unchanged. The set object in DIR lists them, with a checksum of every
    value, and opens like any store. Shards in DIR itself are listed by name, so that the folder can be moved; others by
    their whole path or URL.

    \b
    Example:
      fastio index 's3://bucket/x-{000000..000009}.tar' --to ./index
      fastio bench io ./index/x.fastio-set
    """
    from fastio.store.foreign_index import index_foreign
    from fastio.store.set_names import SET_SUFFIX

    if folder.endswith(SET_SUFFIX):
        raise click.UsageError(f"--to {folder}: expected a folder; the set object in it is named after the shards")
    report = index_foreign(path, folder, options=remote, overwrite=overwrite, jump=jump)
    if as_json:
        echo_json("index", dataclasses.asdict(report))
        return
    click.echo(
        f"{report.path}: {counted(report.samples, 'sample')} in {counted(report.shards, 'shard')}, "
        f"{size(report.size_bytes)}"
    )
