"""``fastio unpack``: gets the packed files back out of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from fastio.cli.remote_options import remote_options
from fastio.cli.screen import meter, problem_table
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["unpack"]


@click.command()
@click.argument("path")
@click.argument("out")
@click.option("--labels", metavar="FILE", help="Also write the labels: .csv, .tsv, .json or .jsonl.")
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
    overwrite: bool,
    on_error: Literal["raise", "skip"],
    remote: RemoteOptions,
) -> None:
    """
    Write the files of the store PATH into the folder OUT. Each is byte for byte what was packed.

    Token ids are decoded into a .txt file or a folder of them; rows of a table become a .jsonl file.

    \b
    Example:
      fastio unpack train.lmdb ./again
      diff -r ./pngs ./again
      fastio unpack damaged.lmdb ./rescued --on-error skip
    """
    from fastio.converters.unpack import unpack as run
    from fastio.store import open_store

    with open_store(path, remote=remote) as store, meter("unpacking", len(store)) as progress:
        report = run(store, out, overwrite=overwrite, labels=labels, on_error=on_error, progress=progress)
    if report.skipped:
        problem_table([(problem.key, problem.problem) for problem in report.skipped])
    left_out = f"; {counted(len(report.skipped), 'sample')} left out (listed above)" if report.skipped else ""
    click.echo(f"{out}: {counted(report.files, 'file')}, {size(report.size_bytes)}{left_out}")
    for note in report.notes:
        click.echo(f"note: {note}")
