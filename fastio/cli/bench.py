"""``fastio bench``: the group of commands that measure this machine, one file each."""

from __future__ import annotations

import click

from fastio.cli.bench_both import both
from fastio.cli.bench_bus import bus
from fastio.cli.bench_decode import decode
from fastio.cli.bench_disk import disk
from fastio.cli.bench_grid import grid
from fastio.cli.bench_io import io
from fastio.cli.bench_train import train
from fastio.cli.group import Group

__all__ = ["bench"]


@click.group(cls=Group)
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


for _command in (both, io, train, grid, decode, disk, bus):
    bench.add_command(_command)
