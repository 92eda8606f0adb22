"""``fastio bench bus``: copies between host memory and a CUDA device."""

from __future__ import annotations

import dataclasses

import click

from fastio.cli.json_form import echo_json
from fastio.cli.screen import size, table

__all__ = ["bus"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result for machines.")
def bus(*, as_json: bool) -> None:
    """
    Copy between host and CUDA device. From pinned and from pageable memory.

    Without a CUDA device there is nothing to measure: one line says so, and the exit code is 0.

    \b
    Example:
      fastio bench bus
    """
    from fastio.measure.bus import has_cuda, measure_bus

    if not has_cuda():
        reason = "no CUDA device here (or a torch without CUDA): nothing to copy to"
        if as_json:
            echo_json("bench.bus", {"skipped": reason, "rates": []})
        else:
            click.echo(f"skipped: {reason}")
        return
    rates = measure_bus()
    if as_json:
        echo_json("bench.bus", {"skipped": None, "rates": [dataclasses.asdict(rate) for rate in rates]})
        return
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
    table(("direction", "memory", "a copy of", "median", "slowest to fastest"), rows, right=(2, 3, 4))
