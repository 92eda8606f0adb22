"""``fastio bandwidth``, ``bench disk`` and ``bench bus``: what this machine's disks and buses carry."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastio.cli.result import echo_json, html_option, write_html
from fastio.cli.screen import SIZE, begun, printable, table
from fastio.types.units import counted, duration, number, per_second, size

if TYPE_CHECKING:
    from fastio.measure.machine.bandwidth import BusRate
    from fastio.measure.machine.disk import DiskReport

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
    write_html(lambda: disk_page(figures | {"path": str(Path(path).resolve())}))
    if as_json:
        echo_json("bench.disk", figures)
    else:
        _print_disk(report)


def _print_disk(report: DiskReport) -> None:
    click.echo(
        f"{printable(report.path)}: {size(report.size_bytes)} written and synced at "
        f"{size(report.write_bytes_per_s)}/s, {number(report.files)} small files\n"
    )
    rows = [
        (
            rate.access,
            rate.cache,
            str(rate.threads),
            size(rate.bytes_per_s) + "/s",
            per_second(rate.reads_per_s),
            *(f"{seconds * 1e6:,.0f}" for seconds in (rate.p50_s, rate.p99_s, rate.max_s)),
        )
        for rate in report.rates
    ]
    titles = ("read", "cache", "threads", "rate", "reads/s", "p50 us", "p99 us", "max us")
    table(titles, rows, right=range(2, 8))
    click.echo("\n" + _judged(report))


def _judged(report: DiskReport) -> str:
    from fastio.measure.machine.disk import EXPECTED_DISK, EXPECTED_NVME, expected_rate
    from fastio.measure.machine.disk_kind import kind_in_words

    rate = report.sequential_bytes_per_s
    if rate is None:
        return (
            "nothing could be read cold: this file system keeps its pages in memory (tmpfs, or one that "
            "ignores posix_fadvise), so these figures are those of memory"
        )
    expected = expected_rate(report.kind)
    if expected is not None:
        what = f"{rate / expected:.2f}x of what to expect ({size(expected)}/s)"
        return f"cold, sequential: {size(rate)}/s; the disk is {kind_in_words(report.kind)}: {what}"
    return (
        f"cold, sequential: {size(rate)}/s; the disk is {kind_in_words(None)}: expect "
        f"{size(EXPECTED_DISK)}/s from a hard disk, {size(EXPECTED_NVME)}/s from an NVMe drive"
    )


# ``fastio bench bus``: copies between host memory and a CUDA device.


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
    from fastio.measure.machine.bandwidth import has_cuda, measure_bus
    from fastio.measure.report.machine import bus_page

    rates = measure_bus() if has_cuda() else []
    skipped = None if rates else "no CUDA device here (or a torch without CUDA): nothing to measure"
    report = {"skipped": skipped, "rates": [dataclasses.asdict(rate) for rate in rates]}
    write_html(lambda: bus_page(report))
    if as_json:
        echo_json("bench.bus", report)
    elif skipped is not None:
        click.echo(f"skipped: {skipped}")
    else:
        _print_bus(rates)


def _print_bus(rates: list[BusRate]) -> None:
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
