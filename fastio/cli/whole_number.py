"""WholeNumber: an option's value as a whole number in a range; the error says which numbers are meant."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["WholeNumber"]


class WholeNumber(click.IntRange):
    """As ``click.IntRange``, which says that "x" is no valid integer range, but not what would be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises BadParameter that says what is expected."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r}: expected a whole number{self._range}", param, ctx)

    @property
    def _range(self) -> str:
        """The limits in words, each of which may be missing."""
        if self.min is not None and self.max is not None:
            return f" from {self.min:,} to {self.max:,}"
        return "" if self.min is None else f", {self.min:,} or more"
