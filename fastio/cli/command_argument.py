"""The words of a training behind a command's own options, or among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["command_argument"]


def command_argument(*, required: bool = False) -> Callable[[Any], Any]:
    """
    COMMAND: a script, ``-m module`` or function with its arguments, options of its own included.

    The click.command needs ``ignore_unknown_options``; an unknown option before COMMAND's first word is an error.
    """
    return click.argument("command", nargs=-1, required=required, type=click.UNPROCESSED, callback=_checked)


def _checked(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    del parameter
    if words and words[0].startswith("-") and words[0] != "-m":
        raise click.NoSuchOption(words[0], ctx=ctx)
    return words
