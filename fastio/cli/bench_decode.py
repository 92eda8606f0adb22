"""``fastio bench decode``: compares decoders on the user's own pictures."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import begun, printable, table
from fastio.types.units import counted, per_second

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["decode"]


@click.command()
@click.argument("data")
@click.option(
    "--crop", type=click.IntRange(min=1), metavar="N", help="Also resize each picture and crop its centre to N pixels."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=200,
    show_default=True,
    help="How many pictures, spread evenly over DATA.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), metavar="N", default=3, show_default=True, help="Interleaved rounds."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
@html_option
def decode(data: str, *, crop: int | None, count: int, rounds: int, as_json: bool, remote: RemoteOptions) -> None:
    """
    Compare Pillow, OpenCV and fastio at decoding DATA. DATA is a store or a folder of pictures.

    Prints images per CPU-second of one thread, and how far the pixels differ from Pillow's (of 255). Pillow-SIMD is
    used if it is installed. With --crop, fastio decodes only what the crop needs, and its fast mode is listed next to
    the exact one.

    \b
    Example:
      fastio bench decode photos.lmdb --crop 224
      fastio bench decode ./pngs --json
    """
    from fastio.measure.settings.decode import compare_decoders, sample_pictures
    from fastio.report.decode import decode_page

    pictures = sample_pictures(data, count, remote)
    work = f"{counted(len(pictures), 'picture')} by each library, {counted(rounds, 'round')}"
    begun(f"decoding {work}")
    rates = compare_decoders(pictures, crop=crop, rounds=rounds)
    about = {"data": data, "pictures": len(pictures), "crop": crop, "rounds": rounds}
    report = {**about, "decoders": [dataclasses.asdict(rate) for rate in rates]}
    write_html(lambda: decode_page(report))
    if as_json:
        echo_json("bench.decode", report)
        return
    click.echo(f"{printable(data)}: {counted(len(pictures), 'picture')}, one thread\n")
    rows = [
        (
            rate.name,
            per_second(rate.images_per_cpu_s),
            f"{per_second(rate.slowest_images_per_cpu_s)} to {per_second(rate.fastest_images_per_cpu_s)}",
            f"{rate.images_per_cpu_s / rates[0].images_per_cpu_s:.2f}x",
            f"{rate.mean_difference:.3f}",
            f"{rate.p99_difference:.0f}",
            str(rate.max_difference),
        )
        for rate in rates
    ]
    titles = ("decoder", "images/CPU-s", "rounds", "of Pillow", "mean diff", "p99", "max")
    table(titles, rows, right=range(1, 7))
