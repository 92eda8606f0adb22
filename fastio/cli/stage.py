"""``fastio stage``: copies a store to a disk of this machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import counted, meter, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["stage"]


@click.command()
@click.argument("path", metavar="SET")
@click.argument("folder", metavar="DIR")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Blocks of 16 MiB under way at once.  [default: 16 of URLs, 4 of local files]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
def stage(path: str, folder: str, *, jobs: int | None, as_json: bool, remote: RemoteOptions) -> None:
    """
    Copy a store to a disk of this machine.

    SET is a path or URL; a set comes with all its shards. DIR is a folder; the one it lies in must exist. Every byte
    of the copy is checked.

    Run it again after an interruption: it goes on where it stopped. Of the processes that stage to one folder, one
    copies and the others wait. The copy is an ordinary store.

    \b
    Example:
      fastio stage s3://bucket/train.fastio-set $TMPDIR
      fastio verify $TMPDIR/train.fastio-set
    """
    from fastio.store.staging import stage as run

    def say(line: str) -> None:
        click.echo(line, err=True)

    report = run(
        path, folder, options=remote, jobs=jobs, meter=lambda total: meter("copying", total, "bytes"), on_wait=say
    )
    if as_json:
        echo_json("stage", dataclasses.asdict(report))
        return
    there = report.size_bytes - report.fetched_bytes
    parts = [f"{report.path}: {counted(report.files, 'file')}, {size(report.size_bytes)}"]
    if report.fetched_bytes:
        rate = size(report.fetched_bytes / max(report.seconds, 1e-6))
        already = f" ({size(there)} were there already)" if there else ""
        parts.append(
            f"{size(report.fetched_bytes)} copied{already}, every checksum compared; {report.seconds:.1f} s, {rate}/s"
        )
    else:
        parts.append("was there already, unchanged")
    click.echo("; ".join(parts))
