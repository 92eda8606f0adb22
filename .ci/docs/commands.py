"""The pages of the command line: click's own help, written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click

__all__ = ["command_pages"]

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*|[\w./-]*%\d*d(?:\.\w+)?")  # an option, or the name of shards


class _Markdown(click.HelpFormatter):
    """
    Takes what a command says for ``--help`` and writes it as Markdown, below headings of ``level``.

    ``links`` has the address of each command within this one; they are listed by name.
    """

    def __init__(self, level: int, links: Mapping[str, str]) -> None:
        super().__init__(width=10_000)
        self._level = level
        self._links = links

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        del prefix
        self.write(f"```console\n$ {prog} {args}\n```\n\n")

    def write_text(self, text: str) -> None:
        for paragraph in text.strip().split("\n\n"):
            lines = paragraph.strip("\n").splitlines()
            if lines[0].strip() == "\b":  # click prints what follows line by line
                self.write(_verbatim(lines[1:]))
            else:
                self.write(_marked(" ".join(line.strip() for line in lines)) + "\n\n")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        start = len(self.buffer)
        yield
        if len(self.buffer) > start:
            self.buffer.insert(start, f"{'#' * self._level} {name}\n\n")

    @contextmanager
    def indentation(self) -> Iterator[None]:
        yield

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        del col_max, col_spacing
        found = list(rows)
        if all(term in self._links for term, _ in found):
            found.sort()
        for term, words in found:
            head = f"[`{term}`]({self._links[term]})" if term in self._links else f"`{term}`"
            self.write(f"{head}\n: {_marked(' '.join(words.split())) or '(no description)'}\n\n")

    def write_paragraph(self) -> None:
        """Paragraphs end themselves."""


def _verbatim(lines: Sequence[str]) -> str:
    """Write lines that keep their breaks: commands as a console, anything else as it stands."""
    head = [] if lines[0].startswith(" ") else [lines[0].strip(), ""]
    rest = [line.strip() for line in lines[len(head) // 2 :]]
    is_console = all(line.startswith("fastio ") for line in rest)
    block = ["```console", *(f"$ {line}" for line in rest), "```"] if is_console else ["```text", *rest, "```"]
    return "\n".join([*head, *block, "", ""])


def _marked(text: str) -> str:
    """Write text with its options and names of shards as code."""
    parts, start = [], 0
    for option in _OPTION.finditer(text):
        parts += [_escaped(text[start : option.start()]), f"`{option[0]}`"]
        start = option.end()
    return "".join([*parts, _escaped(text[start:])])


def _escaped(text: str) -> str:
    """Write text so that Markdown shows every character of it."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|$" else letter for letter in text)


def command_pages(cli: click.Group, name: str) -> dict[str, str]:
    """Return the Markdown of each command's page, by page: ``index`` for the group, ``fastio-pack`` for a command."""
    top = click.Context(cli, info_name=name, **cli.context_settings)
    links = {child: f"{name}-{child}.md" for child in cli.list_commands(top)}
    pages = {"index": f"# Commands\n\n{_help(cli, top, 2, links)}"}
    for child in links:
        pages[f"{name}-{child}"] = "\n".join(_sections(cli.commands[child], top, child, level=1))
    return pages


def _sections(command: click.Command, parent: click.Context, name: str, level: int) -> Iterable[str]:
    """Yield the command's section, then those of the commands within it."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    children = command.list_commands(context) if isinstance(command, click.Group) else []
    links = {child: f"#{context.command_path} {child}".replace(" ", "-") for child in children}
    yield f"{'#' * level} {context.command_path}\n\n{_help(command, context, level + 1, links)}"
    if isinstance(command, click.Group):
        for child in children:
            yield from _sections(command.commands[child], context, child, level + 1)


def _help(command: click.Command, context: click.Context, level: int, links: Mapping[str, str]) -> str:
    formatter = _Markdown(level, links)
    command.format_help(context, formatter)
    return formatter.getvalue()
