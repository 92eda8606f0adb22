"""Groups of commands, each imported when it is asked for, and help with options under headings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from copy import copy
from importlib import import_module
from typing import Any

import click

__all__ = ["Group", "LazyCommands", "Sections"]


class LazyCommands(MutableMapping[str, click.Command]):
    """
    Commands by name. Each is imported when it is first asked for, from its module in ``homes``, where it has its name.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._commands: dict[str, str | click.Command] = dict(homes)

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name]
        if isinstance(command, str):
            command = self._commands[name] = getattr(import_module(command), name)
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


class Group(click.Group):
    """Lists commands in the order in which people need them, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of registration."""
        del ctx
        return list(self.commands)


class Sections(click.Command):
    """
    A command with many options: ``sections`` maps headings to the names of parameters, in the order in which help lists
    them. "Options" is the heading of those that no other section names; it comes first.

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
        ranks = {name: rank for rank, name in enumerate(title_of)}
        for parameter in sorted(self.get_params(ctx), key=lambda option: ranks.get(str(option.name), len(ranks))):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                lists[title_of.get(str(parameter.name), "Options")].append(record)
        for title, records in lists.items():
            with formatter.section(title):
                formatter.write_dl(records)
