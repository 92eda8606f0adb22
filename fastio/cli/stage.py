"""``fastio stage``: copies a store to a disk of this machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import meter
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions
    from fastio.store.staging import StageReport

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
@click.option("--check", is_flag=True, help="Also compare what was copied before; copy damaged files again.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
def stage(path: str, folder: str, *, jobs: int | None, check: bool, as_json: bool, remote: RemoteOptions) -> None:
    """
    Copy a store to a disk of this machine.

    SET is a path or URL; a set comes with all its shards. DIR is a folder; the one it lies in must exist. Every byte
    that is copied is compared with checksums.

    Run it again after an interruption: it goes on where it stopped, and trusts files that it has copied already. After
    an error of the copy, --check compares these, too, and copies damaged ones again. Of the processes that stage to one
    folder, one copies and the others wait. The copy is an ordinary store.

    \b
    Example:
      fastio stage s3://bucket/train.fastio-set $TMPDIR
      fastio verify $TMPDIR/train.fastio-set
    """
    from fastio.store.staging import stage as run

    def say(line: str) -> None:
        click.echo(line, err=True)

    label = "comparing and copying" if check else "copying"
    report = run(
        path,
        folder,
        options=remote,
        jobs=jobs,
        meter=lambda total: meter(label, total, "bytes"),
        on_wait=say,
        check=check,
    )
    if as_json:
        echo_json("stage", dataclasses.asdict(report))
        return
    click.echo(
        "; ".join([f"{report.path}: {counted(report.files, 'file')}, {size(report.size_bytes)}", *_done(report)])
    )


def _done(report: StageReport) -> list[str]:
    """Return what was copied, compared and trusted."""
    rest = report.size_bytes - report.fetched_bytes
    done = []
    if report.fetched_bytes:
        rate = size(report.fetched_bytes / max(report.seconds, 1e-6))
        done.append(f"{size(report.fetched_bytes)} copied, every checksum compared; {report.seconds:.1f} s, {rate}/s")
    if report.mended_files:
        was = "was" if report.mended_files == 1 else "were"
        done.append(f"{counted(report.mended_files, 'file')} had been damaged and {was} copied again")
    if report.trusted_bytes:
        there = f"{size(report.trusted_bytes)} were there already" if report.fetched_bytes else "was there already"
        done.append(f"{there}, and not compared again: --check does")
    elif rest:
        done.append(f"{size(rest)} were there already, every checksum compared")
    return done
