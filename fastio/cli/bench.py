"""``fastio bench``: the group of commands that measure this machine, one file each."""

from __future__ import annotations

import click

from fastio.cli.group import Group, LazyCommands

__all__ = ["bench"]


_COMMANDS = LazyCommands(
    {
        "both": "fastio.cli.bench_both",
        "io": "fastio.cli.bench_io",
        "train": "fastio.cli.bench_train",
        "grid": "fastio.cli.bench_grid",
        "decode": "fastio.cli.bench_decode",
        "disk": "fastio.cli.bench_disk",
        "bus": "fastio.cli.bench_bus",
    }
)


@click.group(cls=Group, commands=_COMMANDS)
def bench() -> None:
    """
    Measure loading, training, decoding, disks and buses.

    DATA is a store, a folder of picture files, or MODULE:FUNCTION (or script.py:FUNCTION): a function of yours that
    returns any loader, or a loader and a step(batch) as a pair.

    \b
    Example:
      fastio bench io train.lmdb --shuffle --threads 4
      fastio bench both train.py:loader_and_step
    """
