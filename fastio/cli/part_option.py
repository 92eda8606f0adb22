"""The option ``--part``: which part of a set one process packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fastio.converters import Part

__all__ = ["part_option"]


def _part(context: click.Context, option: click.Parameter, value: str | None) -> Part | None:
    """Parse ``i/n``, or find the part that ``auto`` stands for."""
    if value is None:
        return None
    from fastio.converters import Part

    try:
        return Part.parse(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), context, option) from exc


part_option = click.option(
    "--part",
    callback=_part,
    metavar="I/N",
    help="Pack part I of N, counted from 0, of the shards; auto: as SLURM, torchrun or Kubernetes say.",
)
