"""``fastio tune``: finds the best setting of a loader on this machine, as a line of code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastio.cli.data_options import split_fields
from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import steps, table
from fastio.types.units import counted, per_second

if TYPE_CHECKING:
    from fastio.measure.settings.tune import Tuned
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["tune"]

_SHOWN = 5


@click.command()
@click.argument("data")
@click.option(
    "--batch-size", type=click.IntRange(min=1), metavar="N", default=256, show_default=True, help="Samples per batch."
)
@click.option("--shuffle", is_flag=True, help="Shuffle, as in training.")
@click.option(
    "--crop", type=click.IntRange(min=1), metavar="N", help="Resize each picture and crop its centre to N pixels."
)
@click.option("--augment", is_flag=True, help="Flip pictures at random; with --crop, crop at random too.")
@click.option("--fields", metavar="NAME,...", help="Read only these fields of a store.  [default: all]")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 55),
    metavar="SECONDS",
    default=40,
    show_default=True,
    help="Time for the search.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
@html_option
def tune(  # noqa: PLR0913 - one argument an option
    data: str,
    *,
    batch_size: int,
    shuffle: bool,
    crop: int | None,
    augment: bool,
    fields: str | None,
    seconds: float,
    as_json: bool,
    remote: RemoteOptions,
) -> None:
    """
    Find the settings with which DATA loads fastest here. Prints the line of code to paste.

    DATA is a store (tunes FastLoader), a folder of pictures, or MODULE:FUNCTION that returns a map-style dataset
    (both tune torch's DataLoader). Only the CPUs that affinity, cgroup and SLURM allow are used, and prefetched
    batches take at most a quarter of the free memory. Among settings within 3 % of the best, the cheapest wins.

    \b
    Example:
      fastio tune photos.lmdb --shuffle --crop 224 --augment
      fastio tune train.py:make_dataset --batch-size 128
    """
    from fastio.measure.loop.data import DataOptions
    from fastio.measure.settings.points import GridData
    from fastio.measure.settings.tune import candidates
    from fastio.measure.settings.tune import tune as run
    from fastio.report.tune import tune_page

    names = split_fields(fields)
    options = DataOptions(
        batch_size=batch_size, shuffle=shuffle, crop=crop, augment=augment, fields=names, remote=remote
    )
    grid_data = GridData(data, options)
    points = candidates(grid_data)
    try:
        with steps("trying") as progress:
            tuned = run(grid_data, points, seconds=seconds, progress=progress)
    finally:
        grid_data.close()
    report = _as_dict(data, tuned)
    write_html(lambda: tune_page(report))
    if as_json:
        echo_json("tune", report)
    else:
        _print(tuned)


def _as_dict(data: str, tuned: Tuned) -> dict[str, object]:
    tried = [
        {"settings": dict(tried.point.settings), "samples_per_s": tried.samples_per_s, "rounds": tried.rounds}
        for tried in tuned.tried
    ]
    return {
        "data": data,
        "code": tuned.code,
        "settings": dict(tuned.point.settings),
        "samples_per_s": tuned.samples_per_s,
        "seconds": tuned.seconds,
        "is_complete": tuned.is_complete,
        "tried": tried,
    }


def _print(tuned: Tuned) -> None:
    rows = [
        (
            ", ".join(f"{name}={value}" for name, value in tried.point.settings),
            per_second(tried.samples_per_s),
            str(tried.rounds),
            "chosen" if tried.point == tuned.point else "",
        )
        for tried in tuned.tried[:_SHOWN]
    ]
    table(("setting", "samples/s", "rounds", ""), rows, right=(1, 2))
    cut = "" if tuned.is_complete else "; too few rounds to be sure: raise --seconds"
    click.echo(f"\n{counted(len(tuned.tried), 'setting')} tried in {tuned.seconds:.0f} s{cut}. Paste this:\n")
    click.echo(tuned.code)
    if "'***'" in tuned.code:
        click.echo("\n*** stands for a secret: put yours there, or leave the option out where the environment has it.")
