"""A command's result as JSON, and as one HTML file."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastio.cli.options import DATA_NAMES, MODEL_OPTION_NAMES, REMOTE_NAMES, hidden_secrets
from fastio.cli.screen import SIZE

if TYPE_CHECKING:
    from fastio.measure.report.page import Page

__all__ = [
    "echo_json",
    "form",
    "html_option",
    "wants_html",
    "write_html",
]


_NAME = "html"
_NOT_SETTINGS = (_NAME, "as_json", "command", *REMOTE_NAMES)  # the report shows the command line as typed anyway


def html_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --html to a command. Whether the file can be written is checked before the command runs."""

    @wraps(command)
    def with_option(*args: Any, html: str | None, **rest: Any) -> None:
        if html is not None:
            from fastio.measure.report.html import check_target

            check_target(html)
        command(*args, **rest)

    return click.option(f"--{_NAME}", metavar="FILE", help="Also write a report as one self-contained HTML file.")(
        with_option
    )


def wants_html() -> bool:
    """Whether the running command was given the option."""
    return click.get_current_context().params[_NAME] is not None


def write_html(page: Callable[[], Page]) -> None:
    """
    If --html was given, write the page with the command's settings, the machine and the versions.

    Prints the file's name on stderr. Without --html, nothing is imported.
    """
    context = click.get_current_context()
    params = context.params
    if params[_NAME] is None:
        return
    from fastio.measure.report.html import machine, versions, write_page

    declared = [option for option in context.command.params if option.name not in _NOT_SETTINGS]
    in_force = [option for option in declared if _is_in_force(context, str(option.name))]
    given = [(max(option.opts, key=len), params.get(str(option.name)), option.type) for option in in_force]
    settings = [(name, _value(value, kind)) for name, value, kind in given if value is not None and value != ()]
    command = ("command", shlex.join(["fastio", *hidden_secrets(sys.argv[1:])]))
    write_page(params[_NAME], page(), {"Settings": [command, *settings], "Machine": machine(), "Versions": versions()})
    click.echo(f"report: {params[_NAME]}", err=True)


def _is_in_force(context: click.Context, name: str) -> bool:
    """
    Return False for a default that had no effect: no model is trained, or the model or the user's loader sets its
    own.
    """
    params = context.params
    if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
        return True
    if name in MODEL_OPTION_NAMES:
        return params.get("model") is not None
    if name not in DATA_NAMES or not params.keys() >= set(DATA_NAMES):
        return True
    from fastio.measure.loop.data import is_function

    return not is_function(str(params["data"])) and not (name == "batch_size" and params.get("model") is not None)


def _value(value: object, kind: object) -> str:
    if kind is SIZE:
        return f"{value:,} B"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


# The JSON that measuring commands print: one object, whose first key names its form.

# Raised when a key is removed or changes its meaning; new keys may be added at any time.
_VERSION = 1


def form(command: str, report: Mapping[str, object]) -> dict[str, object]:
    """
    Return a command's object, as ``fastio/guide/json.md`` describes it; a figure that is not finite becomes null.

    >>> form("tune", {"seconds": 30.0})
    {'format': 'fastio.tune/1', 'seconds': 30.0}
    """
    from fastio.measure.report.page import finite

    return {"format": f"fastio.{command}/{_VERSION}", **finite(report)}


def echo_json(command: str, report: Mapping[str, object]) -> None:
    """Print a command's object, indented for people."""
    click.echo(json.dumps(form(command, report), indent=2))
