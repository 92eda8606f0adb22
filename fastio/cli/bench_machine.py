"""``fastio bandwidth``, ``bench disk`` and ``bench bus``: what this machine's disks and buses carry."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.result import html_option, show
from fastio.cli.screen import SIZE, begun, printable
from fastio.types.units import counted, size

if TYPE_CHECKING:
    pass

__all__ = [
    "bandwidth",
    "bus",
    "disk",
]


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
    from fastio.measure.report.machine import bandwidth_page

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
    show("bandwidth", {"size_bytes": amount, "links": rows}, bandwidth_page, as_json=as_json)


# ``fastio bench disk``: how fast a file system reads, cold and cached.


@click.command()
@click.option("--path", default=".", show_default=True, metavar="DIR", help="A folder on the disk to measure.")
@click.option("--size", "size_bytes", type=SIZE, default="1GiB", show_default=True, help="How much to write and read.")
@click.option(
    "--files", type=click.IntRange(min=16), metavar="N", default=2000, show_default=True, help="How many small files."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def disk(path: str, *, size_bytes: int, files: int, as_json: bool) -> None:
    """
    Read a disk in order, at random, and as many small files. Each is read cold (from disk) and warm (from memory).

    Writes one file of --size and the small files into a new folder below --path, and removes them again. Expect about
    150 MB/s in order from a hard disk and 3,000 MB/s from an NVMe drive. Choose a --size well above the cache of the
    controller or host, or you measure that cache.

    \b
    Example:
      fastio bench disk --path /scratch --size 4GiB
    """
    from fastio.measure.machine.disk import measure_disk
    from fastio.measure.report.machine import disk_page

    what = f"{size(size_bytes)} and {counted(files, 'small file')}"
    begun(f"writing {what} below {printable(path)}, reading them, removing them")
    report = measure_disk(path, size_bytes=size_bytes, files=files)
    figures = {**dataclasses.asdict(report), "sequential_bytes_per_s": report.sequential_bytes_per_s}
    show("bench.disk", figures, disk_page, as_json=as_json)


# ``fastio bench bus``: copies between host memory and a CUDA device.


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def bus(*, as_json: bool) -> None:
    """
    Measure copies between host and CUDA device. Uses pinned and pageable memory.

    Without a CUDA device it says so and exits with 0.

    \b
    Example:
      fastio bench bus
    """
    from fastio.measure.machine.bandwidth import has_cuda, measure_bus
    from fastio.measure.report.machine import bus_page

    rates = measure_bus() if has_cuda() else []
    skipped = None if rates else "no CUDA device here (or a torch without CUDA): nothing to measure"
    report = {"skipped": skipped, "rates": [dataclasses.asdict(rate) for rate in rates]}
    show("bench.bus", report, bus_page, as_json=as_json)
