"""``fastio bench bus``: copies between host memory and a CUDA device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.screen import table
from fastio.types.units import size

if TYPE_CHECKING:
    from fastio.measure.machine.bus import BusRate

__all__ = ["bus"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def bus(*, as_json: bool) -> None:
    """
    Measure copies between host and CUDA device. Uses pinned and pageable memory.

    Without a CUDA device it prints one line and exits with 0.

    \b
    Example:
      fastio bench bus
    """
    from fastio.measure.machine.bus import has_cuda, measure_bus
    from fastio.report.bus import bus_page

    rates = measure_bus() if has_cuda() else []
    skipped = None if rates else "no CUDA device here (or a torch without CUDA): nothing to measure"
    report = {"skipped": skipped, "rates": [dataclasses.asdict(rate) for rate in rates]}
    write_html(lambda: bus_page(report))
    if as_json:
        echo_json("bench.bus", report)
    elif skipped is not None:
        click.echo(f"skipped: {skipped}")
    else:
        _print(rates)


def _print(rates: list[BusRate]) -> None:
    rows = [
        (
            rate.direction,
            rate.memory,
            size(rate.size_bytes),
            size(rate.bytes_per_s) + "/s",
            f"{size(rate.slowest_bytes_per_s)}/s to {size(rate.fastest_bytes_per_s)}/s",
        )
        for rate in rates
    ]
    table(("direction", "memory", "size of a copy", "median", "slowest to fastest"), rows, right=(2, 3, 4))
