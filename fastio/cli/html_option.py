"""The option --html, which every command has that measures: a report as one file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastio.report.page import Page

__all__ = ["html_option", "wants_html", "write_html"]

_NAME = "html"
_NOT_SETTINGS = (_NAME, "as_json")


def html_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option, for ``write_html``; whether a file can be made there is checked before it runs."""

    @wraps(command)
    def with_option(*args: Any, html: str | None, **rest: Any) -> None:
        if html is not None:
            from fastio.report.write import check_target

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
    from fastio.report.setting import machine, versions
    from fastio.report.write import write_page

    declared = [each for each in click.get_current_context().command.params if each.name not in _NOT_SETTINGS]
    given = [(max(each.opts, key=len), params.get(str(each.name))) for each in declared]
    settings = [(name, _value(value)) for name, value in given if value is not None and value != ()]
    command = ("command", shlex.join(["fastio", *sys.argv[1:]]))
    write_page(params[_NAME], page(), {"Settings": [command, *settings], "Machine": machine(), "Versions": versions()})
    click.echo(f"report: {params[_NAME]}", err=True)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
