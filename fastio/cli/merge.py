"""``fastio merge``: makes one set of the shards of several, without copying them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions
    from fastio.store.merge import MergeReport

__all__ = ["merge"]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="STORE...")
@click.option("--out", required=True, metavar="NAME.fastio-set", help="The set object to write.")
@click.option("--overwrite", is_flag=True, help="Replace a set object that exists; its shards stay where they are.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@remote_options
def merge(paths: tuple[str, ...], *, out: str, overwrite: bool, as_json: bool, remote: RemoteOptions) -> None:
    """
    Make one set of several, without copying their shards.

    The samples of the STOREs come one store after the other. The new set lists the shards where they lie, so it does
    not open once one of them has been removed or replaced.

    Each STORE is a set object, shards by a pattern, a folder of shards or one tar file, all packed by fastio. Fields,
    classes and tokenizers must agree, and no two samples may have the same key. Shards in the folder of the new set
    are listed by name, so that the folder can be moved; others by their whole path or URL.

    \b
    Example:
      fastio merge 2023.fastio-set 2024.fastio-set --out all.fastio-set
      fastio merge s3://bucket/a-%06d.tar s3://bucket/b-%06d.tar --out s3://bucket/all.fastio-set
    """
    from fastio.store.merge import merge_stores

    report = merge_stores(paths, out, overwrite=overwrite, remote=remote)
    if as_json:
        echo_json("merge", dataclasses.asdict(report))
    else:
        _print(report)


def _print(report: MergeReport) -> None:
    for store in report.merged:
        click.echo(f"{store.path}: {_holds(store.samples, store.shards, store.size_bytes)}")
    click.echo(f"{report.path}: {_holds(report.samples, report.shards, report.size_bytes)}; nothing was copied")


def _holds(samples: int, shards: int, size_bytes: int) -> str:
    return f"{counted(samples, 'sample')} in {counted(shards, 'shard')}, {size(size_bytes)}"
