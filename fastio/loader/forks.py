"""What has threads behind it belongs to one process: a forked child, which inherits none of them, makes its own."""

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

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._pid = os.getpid()
        self._value = make()

    def here(self) -> Value:
        """The value for the calling process; a forked child that has only its parent's makes one first."""
        if self._pid != os.getpid():
            self._value = self._make()
            self._pid = os.getpid()
        return self._value

    @property
    def own(self) -> Value | None:
        """The value; None in a forked child that has only its parent's, which it must neither wait for nor close."""
        return self._value if self._pid == os.getpid() else None
