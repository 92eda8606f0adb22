"""The option --html, which every command has that measures: a report as one file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastio.report import Page

__all__ = ["html_option", "wants_html", "write_html"]

_NAME = "html"


def html_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option, for ``write_html``; whether a file can be made there is checked before it runs."""

    @wraps(command)
    def with_option(*args: Any, html: str | None, **rest: Any) -> None:
        if html is not None:
            from fastio.report import check_target

            check_target(html)
        command(*args, **rest)

    return click.option(f"--{_NAME}", metavar="FILE", help="Also write a report: one HTML file, complete in itself.")(
        with_option
    )


def wants_html() -> bool:
    """Whether the running command was given the option."""
    return click.get_current_context().params[_NAME] is not None


def write_html(page: Callable[[], Page]) -> None:
    """
    Where the option was given, write the page with the command's settings, the machine and the versions.

    Says on stderr where it lies. Nothing is imported otherwise.
    """
    params = click.get_current_context().params
    if params[_NAME] is None:
        return
    from fastio.report import write_page
    from fastio.report.setting import machine, versions

    declared = [each.name for each in click.get_current_context().command.params if each.name not in (None, _NAME)]
    settings = [(str(name), _value(params[name])) for name in declared if params.get(name) is not None]
    command = ("command", shlex.join(["fastio", *sys.argv[1:]]))
    write_page(params[_NAME], page(), {"Settings": [command, *settings], "Machine": machine(), "Versions": versions()})
    click.echo(f"report: {params[_NAME]}", err=True)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
