"""A group of commands."""

from __future__ import annotations

import click

__all__ = ["Group"]


class Group(click.Group):
    """Lists its commands in the order in which they are needed, not by letters."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their registration."""
        del ctx
        return list(self.commands)
