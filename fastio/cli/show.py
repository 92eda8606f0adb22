"""``fastio show``: draws a contact sheet of a store."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastio.cli.pixel_option import max_pixels_option
from fastio.cli.remote_options import remote_options
from fastio.cli.screen import printable
from fastio.errors import FastioError
from fastio.types.units import number

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["show"]


@click.command()
@click.argument("path")
@click.option("-o", "--out", default="contact_sheet.png", show_default=True, metavar="FILE", help="PNG file to write.")
@click.option(
    "--count",
    type=click.IntRange(1, 2000),
    metavar="N",
    default=40,
    show_default=True,
    help="How many samples to draw.",
)
@click.option(
    "--columns", type=click.IntRange(1, 100), metavar="N", default=8, show_default=True, help="How many per row."
)
@click.option(
    "--size",
    type=click.IntRange(32, 1024),
    metavar="N",
    default=128,
    show_default=True,
    help="Width and height of each picture in pixels.",
)
@click.option(
    "--seed",
    type=int,
    metavar="SEED",
    help="Choose samples at random; without it, they are spread evenly over the store.",
)
@max_pixels_option
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@remote_options
def show(
    path: str,
    *,
    out: str,
    count: int,
    columns: int,
    size: int,
    seed: int | None,
    overwrite: bool,
    remote: RemoteOptions,
) -> None:
    """
    Draw pictures of the store PATH with their labels. Writes a contact sheet as a PNG.

    Masks, boxes and points of the same samples are drawn over the pictures.

    \b
    Example:
      fastio show train.lmdb -o sheet.png --count 60 --seed 1
    """
    from fastio.converters.contact_sheet import contact_sheet
    from fastio.store import open_store

    if Path(out).suffix.lower() != ".png":
        raise FastioError(f"{out}: the contact sheet is a PNG: choose a name that ends in .png")
    if not Path(out).parent.is_dir():
        raise FastioError(f"{out}: the folder {Path(out).parent} does not exist; create it first")
    if os.path.lexists(out) and not overwrite:
        raise FastioError(f"{out}: exists; choose another name with -o, or --overwrite")
    with open_store(path, remote=remote) as store:
        sheet, problems = contact_sheet(store, count=count, columns=columns, size=size, seed=seed)
    partial = Path(out).with_name(f".{Path(out).name}.partial-{os.getpid()}")
    try:
        sheet.save(partial, format="PNG")
        partial.replace(out)
    except OSError as exc:
        reason = exc.strerror or exc
        raise FastioError(f"{out}: cannot be written ({reason}); free space, or choose another place with -o") from exc
    finally:
        with suppress(OSError):  # a folder that refuses new files has none to remove
            partial.unlink(missing_ok=True)
    click.echo(f"{out}: {sheet.width} x {sheet.height} pixels")
    if problems:
        first = f"{printable(problems[0].key)}: {printable(problems[0].problem)}"
        verb = "is" if len(problems) == 1 else "are"
        click.echo(
            f"warning: {number(len(problems))} of the samples shown {verb} damaged, "
            f"e.g. {first}; `fastio verify` lists all",
            err=True,
        )
