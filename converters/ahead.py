"""Works a limited number of pieces ahead, on threads, and returns the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from fastio._native import ThreadPool
from fastio.converters.source import Chunk, Source, Stage

__all__ = ["begun_ahead", "chunks_through", "in_order", "read_ahead"]

DEPTH = 3  # pieces that native threads work on while one is being used

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


def read_ahead(source: Source, pieces: Iterable[range], pool: ThreadPool) -> Generator[Chunk, None, None]:
    """Yield the chunks of a source in order, while native threads read ``DEPTH`` of them."""
    return begun_ahead(source.begin(piece, pool) for piece in pieces)


def chunks_through(
    source: Source, pieces: Iterable[range], stage: Stage | None, pool: ThreadPool
) -> Generator[Chunk, None, None]:
    """Yield the chunks of a source in order, after the stage if there is one; both work ahead."""
    with closing(read_ahead(source, pieces, pool)) as chunks:
        if stage is None:
            yield from chunks
            return
        parts = (part for chunk in chunks for part in stage.parts(chunk, source.schema))
        with closing(begun_ahead(stage.begin(part, source.schema, pool) for part in parts)) as changed:
            yield from changed


def begun_ahead(works: Iterable[Callable[[], _Result]]) -> Generator[_Result, None, None]:
    """
    Yield the results of works in order, while ``DEPTH`` of them run on native threads.

    There is no Python thread: it would compete with the writer for the GIL, which costs more than it gains.
    """
    waiting: deque[Callable[[], _Result]] = deque()
    for work in works:
        waiting.append(work)
        if len(waiting) > DEPTH:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def in_order(
    work: Callable[[_Piece], _Result], pieces: Iterable[_Piece], *, jobs: int
) -> Generator[_Result, None, None]:
    """
    Yield ``work(piece)`` for every piece, in order, with ``jobs`` of them at a time.

    At most ``jobs + 1`` results wait. Closing the iterator drops the pieces not begun and waits for the others, so no
    thread outlives it; an error of one piece is raised in its turn.
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
