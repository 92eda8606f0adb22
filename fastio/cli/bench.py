"""``fastio bench``: the commands that measure on this machine, a file each."""

from __future__ import annotations

import click

from fastio.cli.bench_both import both
from fastio.cli.bench_bus import bus
from fastio.cli.bench_decode import decode
from fastio.cli.bench_disk import disk
from fastio.cli.bench_grid import grid
from fastio.cli.bench_io import io

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """
    Measure on this machine: loading, training, and what the two do together.

    DATA is a store, a folder of picture files, or MODULE:FUNCTION (or script.py:FUNCTION), a function of yours that
    returns any loader, or a pair of loader and step(batch).

    \b
    Example:
      fastio bench io train.lmdb --shuffle --threads 4
      fastio bench both train.py:loader_and_step
    """


for _command in (io, both, grid, decode, disk, bus):
    bench.add_command(_command)
