"""How a verdict is printed on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fastio.measure.loop.verdict import Verdict

__all__ = ["echo_verdict"]


def echo_verdict(limit: Verdict) -> None:
    """Print the limit's name, the reasons, and what to do next."""
    click.echo(f"\n{limit.bound}" + ("" if limit.headroom is None else f", headroom of loading {limit.headroom:+.0%}"))
    for line in limit.evidence:
        click.echo(f"  {line}")
    click.echo(f"next: {limit.next_step}")
