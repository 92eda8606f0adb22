"""A command's result, from one description: on the terminal, as JSON, and as an HTML file."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from fastio.cli.options import DATA_NAMES, MODEL_OPTION_NAMES, REMOTE_NAMES, hidden_secrets
from fastio.cli.screen import SIZE, columns, printable, table
from fastio.types.units import number

if TYPE_CHECKING:
    from fastio.measure.report.page import Bars, Page, Part, Shares, Table

__all__ = [
    "echo_json",
    "form",
    "html_option",
    "print_page",
    "show",
    "wants_html",
    "write_html",
]


_SHORTEST_BAR, _LONGEST_BAR = 8, 50  # characters
_EIGHTHS = " ▏▎▍▌▋▊▉"
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


def show(name: str, report: Mapping[str, Any], page: Callable[[Mapping[str, Any]], Page], *, as_json: bool) -> None:
    """
    Show a command's result ``report``, whose page ``page`` builds: on the terminal, or as JSON; with --html in a file
    too.
    """
    if as_json:
        echo_json(name, report)
    if as_json and not wants_html():
        return
    built = page(report)
    if not as_json:
        print_page(built)
    write_html(lambda: built)


def print_page(page: Page) -> None:
    """Print the figures of a page: tables as they are, plots in words; the verdict comes last, where the eye stops."""
    click.secho(f"{page.title}: {printable(page.subject)}", bold=True)
    if page.figures:
        click.echo()
        table(("", ""), page.figures)
    for section in page.sections:
        blocks = [] if section.said else [block for part in section.parts if (block := _block(part)) is not None]
        if blocks:
            click.secho(f"\n{section.title}", bold=True)
        for i, block in enumerate(blocks):
            if i and not (block.is_line and blocks[i - 1].is_line):
                click.echo()
            block.show()
    if page.verdict is not None:
        click.secho(f"\n{page.verdict.name}", bold=True)
        for line in page.verdict.evidence:
            click.echo(f"  {printable(line)}")
        if page.verdict.next_step:
            click.echo(f"next: {printable(page.verdict.next_step)}")


class _Block(NamedTuple):
    """What a terminal shows of a part of a page."""

    show: Callable[[], None]
    is_line: bool = False


def _block(part: Part) -> _Block | None:
    """Return what a terminal shows of a part; None of one whose figures stand in a table, and of pictures."""
    from fastio.measure.report.page import Bars, Code, Heading, Plot, Prose, Shares, Table

    if isinstance(part, Prose | Heading):
        return _Block(partial(click.echo, printable(part.text)), is_line=True)
    if isinstance(part, Code):
        return _Block(partial(_print_lines, part.text))
    if isinstance(part, Table) and part.shown != 0:
        return _Block(partial(_print_table, part))
    if isinstance(part, Bars) and not part.tabled:
        return _Block(partial(_print_bars, part))
    if isinstance(part, Shares):
        return _Block(partial(_print_shares, part))
    if isinstance(part, Plot):
        return _Block(partial(click.echo, printable(f"{part.caption}: {part.summary}")), is_line=True)
    return None


def _print_lines(text: str) -> None:
    for line in text.rstrip("\n").split("\n"):
        click.echo(f"    {printable(line)}".rstrip())


def _print_table(part: Table) -> None:
    if part.caption:
        click.echo(printable(part.caption))
    rows = part.rows if part.shown is None else part.rows[: part.shown]
    if rows:
        titles = part.titles or [""] * len(rows[0])
        first = [_shortened(row[0], part.longest) for row in rows]
        whole = [(name, *row[1:]) for name, row in zip(first, rows, strict=True)]
        table([title.replace("_", "_\n") for title in titles], whole, right=part.right)
    if rows and len(rows) < len(part.rows):
        click.echo(f"... {number(len(part.rows))} in all")


def _shortened(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


def _print_bars(part: Bars) -> None:
    click.echo(printable(part.caption))
    length = max(_SHORTEST_BAR, min(_LONGEST_BAR, columns() - 40))
    rows = [(bar.name, bar.text, _drawn(bar.value / part.limit, length)) for bar in part.bars]
    table(("", "", ""), rows, right=(1,))
    if part.mark is not None:
        click.echo(f"{part.mark.name}: {part.mark.text}")


def _drawn(share: float, length: int) -> str:
    """
    Return a bar of whole and partial blocks; a share above 0 is always visible.

    >>> _drawn(0.05, 50), _drawn(0, 50)
    ('██▌', '')
    """
    eighths = max(round(share * length * 8), int(share > 0))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _print_shares(part: Shares) -> None:
    click.echo(printable(part.caption))
    rows = [(share.name, share.text, f"{share.value / part.whole:.1%}") for share in part.parts]
    table(("part", part.unit, "share"), rows, right=(1, 2))


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
    return getattr(kind, "between", " ").join(map(str, value)) if isinstance(value, tuple | list) else str(value)


# The JSON that measuring commands print: one object, whose first key names its form.

# Raised when a key is removed or changes its meaning; new keys may be added at any time.
_VERSIONS = {"plan": 2}  # others: 1


def form(command: str, report: Mapping[str, object]) -> dict[str, object]:
    """
    Return a command's object, as ``fastio/guide/json.md`` describes it; a figure that is not finite becomes null.

    >>> form("tune", {"seconds": 30.0})
    {'format': 'fastio.tune/1', 'seconds': 30.0}
    """
    from fastio.measure.report.page import finite

    return {"format": f"fastio.{command}/{_VERSIONS.get(command, 1)}", **finite(report)}


def echo_json(command: str, report: Mapping[str, object]) -> None:
    """Print a command's object, indented for people."""
    click.echo(json.dumps(form(command, report), indent=2))
