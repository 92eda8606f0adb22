"""PerProcess: threads, and what depends on them, made anew in a forked child, which inherits no threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerProcess"]

Value = TypeVar("Value")


class PerProcess(Generic[Value]):
    """
    Holds what ``make`` returns: thread pools and their memory, or work that such threads have under way.

    A fork copies the object into the child without the threads, so that waiting for it would never end. There,
    ``here`` calls ``make`` again. ``make`` must not refer to the owner of this object: both would then live
    until the garbage collector runs, and with them the memory of batches.
    """

    __slots__ = ("_make", "_pid", "_value")
    _process = staticmethod(os.getpid)  # at interpreter exit, this module may have no ``os`` any more

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._pid = self._process()
        self._value = make()

    def here(self) -> Value:
        """Return this process's value; a forked child makes its own first."""
        if self._pid != self._process():
            self._value = self._make()
            self._pid = self._process()
        return self._value

    @property
    def own(self) -> Value | None:
        """The value, or None in a forked child without its own: it must neither wait for its parent's nor close it."""
        return self._value if self._pid == self._process() else None
