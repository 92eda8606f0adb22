"""How help is laid out: commands in the order in which people need them, options under headings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Any

import click

__all__ = ["Group", "Sections"]


class Group(click.Group):
    """Lists commands in the order in which people need them, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of registration."""
        del ctx
        return list(self.commands)


class Sections(click.Command):
    """
    A command with many options: ``sections`` maps headings to parameter names; all other options come first.

    Its help may have names in braces; ``words`` says what is shown in their place, and is asked when help is shown.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Collection[str]],
        words: Mapping[str, Callable[[], str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._sections = sections
        self._words = words or {}

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help with its words filled in."""
        filled = copy(self)
        for name, word in self._words.items():
            filled.help = (filled.help or "").replace(f"{{{name}}}", word())
        super(Sections, filled).format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        title_of = {name: title for title, names in self._sections.items() for name in names}
        lists: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self._sections)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                lists[title_of.get(str(parameter.name), "Options")].append(record)
        for title, records in lists.items():
            with formatter.section(title):
                formatter.write_dl(records)
