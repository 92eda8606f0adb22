"""How help is laid out: commands in the order in which they are needed, options under titles."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import click

__all__ = ["Group", "Sections"]


class Group(click.Group):
    """Lists its commands in the order in which they are needed, not by letters."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their registration."""
        del ctx
        return list(self.commands)


class Sections(click.Command):
    """A command of many options: ``sections`` has names of parameters under titles, all others come first."""

    def __init__(self, *args: Any, sections: Mapping[str, Collection[str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of options for each title."""
        title_of = {name: title for title, names in self._sections.items() for name in names}
        lists: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self._sections)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                lists[title_of.get(str(parameter.name), "Options")].append(record)
        for title, records in lists.items():
            with formatter.section(title):
                formatter.write_dl(records)
