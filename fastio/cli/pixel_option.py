"""The option --max-pixels of commands that decode pictures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import click

from fastio.cli.whole_number import WholeNumber

__all__ = ["max_pixels_option"]


def max_pixels_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--max-pixels N`` to a command; it sets Pillow's limit for this process, which fastio follows."""
    return click.option(
        "--max-pixels",
        type=WholeNumber(min=0),
        metavar="N",
        callback=_set,
        expose_value=False,
        help="Refuse pictures of more than N pixels; 0: no limit.  [default: 178956970, as Pillow does]",
    )(command)


def _set(ctx: click.Context, parameter: click.Parameter, most: int | None) -> None:
    del ctx, parameter
    if most is None:
        return
    from PIL import Image

    # Pillow refuses from twice this number on: N is rounded up to an even number.
    Image.MAX_IMAGE_PIXELS = -(-most // 2) or None
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the user has chosen the limit
