"""The argument COMMAND: the command line of a training, after a command's own options or among them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
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
        name = words[0].partition("=")[0]
        options = [option for known in ctx.command.params for option in known.opts if option.startswith("--")]
        raise click.NoSuchOption(name, possibilities=get_close_matches(name, options, n=1), ctx=ctx)
    return words
