"""Calls a function in several Python threads that begin together."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

__all__ = ["at_once"]

Result = TypeVar("Result")


def at_once(work: Callable[[int], Result], *, threads: int = 4) -> list[Result]:
    """What ``work`` returns for 0, 1, ..., each called in a thread of its own. Raises what one of them raises."""
    start = Barrier(threads)

    def run(number: int) -> Result:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as executor:
        return list(executor.map(run, range(threads)))
