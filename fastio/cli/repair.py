"""``fastio repair``: writes the missing and damaged shards of a set again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import meter
from fastio.cli.source_kind import source_kind_option
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions
    from fastio.store.repair import RepairReport

__all__ = ["repair"]


@click.command()
@click.argument("path", metavar="SET")
@click.option(
    "--against",
    required=True,
    metavar="SRC",
    help="Where good shards come from: another copy of SET (a set object, shards, a folder, here or behind a URL), or "
    "the source that SET was packed from.",
)
@click.option("--labels", metavar="FILE", help="The label file of SRC, if it is a source.")
@source_kind_option("What SRC is, if it is a source; auto decides by the names in it.", with_text=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@remote_options
@click.pass_context
def repair(
    ctx: click.Context, path: str, *, against: str, labels: str | None, kind: str, as_json: bool, remote: RemoteOptions
) -> None:
    """
    Write missing and damaged shards of a set again.

    Every byte of SET is checked. Shards come from another copy of it, or are packed from its source with the options
    that were used before.

    A shard gets the same bytes as it had, or stays as it is: size and CRC-32 must be those that the set object lists.
    The exit code is 1 if a shard could not be mended. If the set object itself is lost and all shards are whole, use
    fastio seal.

    \b
    Example:
      fastio repair train.fastio-set --against s3://bucket/train.fastio-set
      fastio repair train.fastio-set --against /backup/train
      fastio repair train.fastio-set --against ./imagenet
    """
    from fastio.converters.repair import repair as run

    report = run(path, against, labels=labels, kind=kind, meter=lambda total: meter("checking", total), remote=remote)
    if as_json:
        echo_json("repair", dataclasses.asdict(report))
    else:
        _print(report)
    if report.left:
        ctx.exit(1)


def _print(report: RepairReport) -> None:
    for shard in report.repaired:
        click.echo(f"{shard.path}: {shard.problem}: written again from {shard.source}")
    for shard in report.left:
        click.echo(f"{shard.path}: {shard.problem}: NOT MENDED: {shard.reason}")
    click.echo(f"{report.path}: {_summary(report)}")


def _summary(report: RepairReport) -> str:
    whole = report.shards - len(report.repaired) - len(report.left)
    parts = [f"{whole:,} of {counted(report.shards, 'shard')} were whole"]
    if report.repaired:
        parts.append(f"{len(report.repaired):,} written again")
    if report.left:
        parts.append(f"{len(report.left):,} NOT MENDED (listed above)")
    return "; ".join(parts)
