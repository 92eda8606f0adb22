"""Runs a bounded number of pieces ahead on threads and hands the results over in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


def in_order(
    work: Callable[[_Piece], _Result], pieces: Iterable[_Piece], *, jobs: int
) -> Generator[_Result, None, None]:
    """
    ``work(piece)`` for every piece, in the order of the pieces, ``jobs`` of them at a time.

    At most ``jobs + 1`` results wait. Closing the iterator drops the pieces not begun and waits for the others,
    so no thread outlives it; an error of one piece is raised in its turn.
    """
    with ThreadPoolExecutor(jobs, thread_name_prefix="fastio") as threads:
        waiting: deque[Future[_Result]] = deque()
        try:
            for piece in pieces:
                waiting.append(threads.submit(work, piece))
                if len(waiting) > jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
