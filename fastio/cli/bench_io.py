"""``fastio bench io``: how fast data can be loaded here."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.data_options import data_options
from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.screen import begun, printable
from fastio.types.units import counted, per_second, size

if TYPE_CHECKING:
    from fastio.measure.loop.data import Data, DataOptions

__all__ = ["io"]


@click.command()
@click.argument("data", nargs=-1, required=True)
@data_options("256")
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    metavar="N",
    default=3,
    show_default=True,
    help="How many passes over the data.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="Stop after this time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def io(data: tuple[str, ...], *, options: DataOptions, epochs: int, seconds: float, as_json: bool) -> None:
    """
    Load DATA in batches and throw them away. This is the most that reading and decoding can deliver.

    DATA is a store, a folder of picture files (read with Pillow in a torch DataLoader, as most scripts do), or
    MODULE:FUNCTION that returns any loader. Pictures of different sizes need --crop to fit into one batch. Name
    several DATA to compare them, such as a folder and the store it was packed into; the files opened per second are
    shown too.

    \b
    Example:
      fastio bench io train.lmdb --batch-size 256 --epochs 5
      fastio bench io photos.lmdb --crop 224
      fastio bench io ./pngs train.lmdb
      fastio bench io train.py:make_loader
    """
    from fastio.report.loading import loading_page

    reports = []
    with ExitStack() as stack:
        # All are opened before the first is measured: what cannot be read is said at once.
        every = [stack.enter_context(_opened(name, options, is_alone=len(data) == 1)) for name in data]
        for name, opened in zip(data, every, strict=True):
            begun(f"loading {printable(name)}: {counted(epochs, 'epoch')}, {seconds:g} s at most")
            with opened:
                reports.append(_measured(name, opened, epochs=epochs, seconds=seconds))
            if not as_json:
                click.echo(_line(reports[-1]))
    if not as_json:
        _print_beside(reports)
    first = {**reports[0], "beside": reports[1:]}
    if as_json:
        echo_json("bench.io", first)
    write_html(lambda: loading_page(first))


def _opened(name: str, options: DataOptions, *, is_alone: bool) -> Data:
    """Open DATA; if it is one of several, without the options that are meant for another kind of DATA."""
    from fastio.measure.loop.data import open_data

    if not is_alone:
        is_folder = Path(name).is_dir()
        replace = dataclasses.replace
        options = replace(options, threads=None) if is_folder else replace(options, workers=None)
    return open_data(name, options)


def _measured(name: str, opened: Data, *, epochs: int, seconds: float) -> dict[str, Any]:
    from fastio.errors import FastioError
    from fastio.measure.loop.folder import opens_per_s
    from fastio.measure.loop.mock import MockTrainer

    result = MockTrainer().run(opened.loader, epochs=epochs, seconds=seconds)
    if result.batches == 0:
        raise FastioError(f"{name}: the loader is empty: nothing to measure")
    bytes_each = None
    if opened.size_bytes is not None and opened.samples:
        bytes_each = opened.size_bytes / opened.samples
    return {
        "data": name,
        "kind": opened.kind,
        **dataclasses.asdict(result),
        "samples_per_s": result.samples_per_s,
        "steady_samples_per_s": result.steady_samples_per_s,
        "bytes_per_s": None if bytes_each is None else result.samples_per_s * bytes_each,
        "opens_per_s": opens_per_s(opened.kind, result.samples_per_s),
    }


def _line(report: dict[str, Any]) -> str:
    words = [f"{printable(report['data'])}: {per_second(report['samples_per_s'])} samples/s"]
    if report["bytes_per_s"] is not None:
        what = "store" if report["kind"] == "store" else "files"
        words[0] += f", {size(report['bytes_per_s'])}/s of the {what}"
    if report["opens_per_s"] is not None:
        opened = "opened once" if report["kind"] == "store" else f"{per_second(report['opens_per_s'])} files opened/s"
        words.append(opened)
    words.append(
        f"{counted(report['samples'], 'sample')} in {report['seconds']:.2f} s, {report['cpu_seconds']:.2f} s of CPU"
        + (" (without the workers')" if report["kind"] != "store" else "")
    )
    words.append(f"first batch after {report['first_batch_s'] * 1e3:.1f} ms")
    return "; ".join(words)


def _print_beside(reports: list[dict[str, Any]]) -> None:
    """Print each rate as a multiple of the first."""
    first = reports[0]
    for report in reports[1:]:
        ratio = report["samples_per_s"] / first["samples_per_s"]
        click.echo(f"{printable(report['data'])}: {ratio:.2g} times the samples/s of {printable(first['data'])}")
