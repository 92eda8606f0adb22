"""UnfitError: a value that is not of its field's type."""

from __future__ import annotations

from typing import Any

__all__ = ["UnfitError", "unfit"]

_SHOWN = 60  # characters of a value in a message


class UnfitError(Exception):
    """A value that does not fit its field; the message follows "has a field 'name' that"."""

    def sentence(self, field: str) -> str:
        """Return the problem in words that follow the sample's key."""
        return f"has a field {field!r} that {self}"


def unfit(value: Any, expected: str, *, got: str = "") -> UnfitError:
    """Return the error for a value of another type than ``expected``; ``got`` says more than the type's name."""
    if value is None:
        return UnfitError(f"is None; expected {expected}")
    try:
        text = " ".join(repr(value).split())
    except Exception:  # any class may be handed over, and its repr may fail in any way
        text = "..."
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return UnfitError(f"is {got or type(value).__name__} ({text}); expected {expected}")
