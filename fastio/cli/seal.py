"""``fastio seal``: makes a set of the shards that parts have packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastio.cli.remote_options import remote_options
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["seal"]


@click.command()
@click.argument("out")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the set of this name by the shards that it does not list, and remove its own.",
)
@remote_options
def seal(out: str, *, overwrite: bool, remote: RemoteOptions) -> None:
    """
    Make a set of the shards OUT that parts have packed.

    OUT is named as it was packed, such as 'train-%06d.tar'; the source is not needed. The last part seals by itself.
    If a shard is missing or damaged, it is named and nothing is written. A damaged set object is made anew.

    \b
    Example:
      fastio seal 'photos-%06d.tar'
    """
    from fastio.converters import seal as run
    from fastio.converters.planned.seal import unread_points

    made = run(out, overwrite=overwrite, remote=remote)
    size_bytes = sum(member.size for member in made.members)
    shards = counted(len(made.members), "shard")
    click.echo(f"{made.path}: a set of {shards}, {counted(len(made), 'sample')}, {size(size_bytes)}")
    for line in unread_points(out, made, remote=remote):
        click.echo(line)
