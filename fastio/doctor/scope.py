"""Finds the names of objects in the user's own code, where the loop that uses them stands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType

from fastio.measure.loop.user_code import is_users_code

__all__ = ["names_of"]


def names_of(values: Mapping[str, object]) -> dict[str, str]:
    """
    Return the variable that holds each value, by key, in the nearest calling frame of the user that has one.

    Values without a name there, and None, are left out.
    """
    wanted = {id(value): key for key, value in values.items() if value is not None}
    names: dict[str, str] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(names) < len(wanted):
        if is_users_code(frame.f_code.co_filename, str(frame.f_globals.get("__name__"))):
            for scope in (frame.f_locals, frame.f_globals):
                for name, value in list(scope.items()):
                    key = wanted.get(id(value))
                    if key is not None and name.isidentifier() and not name.startswith("__"):
                        names.setdefault(key, name)
        frame = frame.f_back
    return names
