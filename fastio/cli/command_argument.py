"""The argument COMMAND: the command line of a training, after a command's own options or among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["command_argument"]


def command_argument(*, required: bool = False) -> Callable[[Any], Any]:
    """
    Return the argument COMMAND: a script, ``-m module`` or function with its arguments, including its options.

    The click.command needs ``ignore_unknown_options``. An unknown option before COMMAND's first word is an error.
    """
    return click.argument("command", nargs=-1, required=required, type=click.UNPROCESSED, callback=_checked)


def _checked(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    del parameter
    if words and words[0].startswith("-") and words[0] != "-m":
        raise click.NoSuchOption(words[0], ctx=ctx)
    return words
