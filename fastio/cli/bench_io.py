"""``fastio bench io``: how fast data can be loaded here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from fastio.cli.data_options import data_options
from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.screen import begun, counted, per_second, printable, size

if TYPE_CHECKING:
    from fastio.measure.data import Data, DataOptions
    from fastio.measure.mock import MockResult

__all__ = ["io"]


@click.command()
@click.argument("data")
@data_options("256")
@click.option(
    "--epochs", type=click.IntRange(min=1), metavar="N", default=3, show_default=True, help="Passes over the data."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="Stop after so long.",
)
@click.option("--json", "as_json", is_flag=True, help="The result for machines.")
@html_option
def io(data: str, *, options: DataOptions, epochs: int, seconds: float, as_json: bool) -> None:
    """
    Load DATA in batches and throw them away. The limit that I/O and decoding set.

    DATA is a store, a folder of picture files (read with Pillow in a torch DataLoader, as most scripts do), or
    MODULE:FUNCTION, which returns any loader. Pictures of different sizes need --crop: they do not fit into one batch
    as they are.

    \b
    Example:
      fastio bench io train.lmdb --batch-size 256 --epochs 5
      fastio bench io photos.lmdb --crop 224
      fastio bench io ./pngs --workers 2
      fastio bench io train.py:make_loader
    """
    from fastio.errors import FastioError
    from fastio.measure.data import open_data
    from fastio.measure.mock import MockTrainer
    from fastio.report.loading import loading_page

    with open_data(data, options) as opened:
        begun(f"loading {printable(data)}: {counted(epochs, 'epoch')}, {seconds:g} s at most")
        result = MockTrainer().run(opened.loader, epochs=epochs, seconds=seconds)
        if result.batches == 0:
            raise FastioError(f"{data}: the loader is empty; there is nothing to measure")
        rates = {"samples_per_s": result.samples_per_s, "steady_samples_per_s": result.steady_samples_per_s}
        said = {"data": data, "kind": opened.kind, **dataclasses.asdict(result), **rates}
        if as_json:
            echo_json("bench.io", said)
        else:
            click.echo(_line(opened, result))
    write_html(lambda: loading_page(said))


def _line(data: Data, result: MockResult) -> str:
    said = [f"{printable(data.name)}: {per_second(result.samples_per_s)} samples/s"]
    if data.size_bytes is not None and data.samples:
        what = "store" if data.kind == "store" else "files"
        said[0] += f", {size(result.samples_per_s * data.size_bytes / data.samples)}/s of the {what}"
    said.append(
        f"{counted(result.samples, 'sample')} in {result.seconds:.2f} s, {result.cpu_seconds:.2f} s of CPU"
        + (" without that of workers" if data.kind != "store" else "")
    )
    said.append(f"first batch after {result.first_batch_s * 1e3:.1f} ms")
    return "; ".join(said)
