"""The option of commands that decode pictures: how large they may be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import click

__all__ = ["max_pixels_option"]


def max_pixels_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--max-pixels N``, which sets Pillow's limit for this process, and so fastio's."""
    return click.option(
        "--max-pixels",
        type=click.IntRange(min=0),
        metavar="N",
        callback=_set,
        expose_value=False,
        help="Refuse pictures of more than N pixels, 0: none.  [default: 178956970, as Pillow does]",
    )(command)


def _set(ctx: click.Context, parameter: click.Parameter, most: int | None) -> None:
    del ctx, parameter
    if most is None:
        return
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = -(-most // 2) or None  # it refuses twice as many: N is rounded up to an even number
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the user has said what is too large
