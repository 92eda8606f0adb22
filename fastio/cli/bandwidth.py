"""``fastio bandwidth``: how long an amount of data takes over each link."""

from __future__ import annotations

import click

from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.screen import SIZE, table
from fastio.types.units import duration, size

__all__ = ["bandwidth"]


@click.command()
@click.argument("amount", type=SIZE)
@click.option("--measured", is_flag=True, help="Also measure memory, the disk under --path, and a CUDA device's bus.")
@click.option("--path", default=".", show_default=True, metavar="DIR", help="A folder on the disk to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@html_option
def bandwidth(amount: int, *, measured: bool, path: str, as_json: bool) -> None:
    """
    Show how long AMOUNT of data takes over each link. Uses published rates and, with --measured, those of this
    machine.

    \b
    Example:
      fastio bandwidth 1PB
      fastio bandwidth 150GB --measured --path /scratch
    """
    from fastio.measure.machine.bandwidth import LINKS, measured_links
    from fastio.report.bandwidth import bandwidth_page

    links = [*LINKS, *(measured_links(path) if measured else ())]
    links.sort(key=lambda link: -link.bytes_per_s)
    rows = [
        {
            "link": link.name,
            "bytes_per_s": link.bytes_per_s,
            "measured": link.is_measured,
            "seconds": link.seconds(amount),
        }
        for link in links
    ]
    report = {"size_bytes": amount, "links": rows}
    write_html(lambda: bandwidth_page(report))
    if as_json:
        echo_json("bandwidth", report)
        return
    table(
        ("link", "rate", "source", f"time for {size(amount)}"),
        [
            (
                link.name,
                size(link.bytes_per_s) + "/s",
                "measured here" if link.is_measured else "published",
                duration(link.seconds(amount)),
            )
            for link in links
        ],
        right=(1, 3),
    )
