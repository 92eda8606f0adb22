"""EpochIterator: what iterating over a loader returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["EpochIterator"]


class EpochIterator:
    """
    Hands out the batches of one epoch, to one thread at a time.

    Raises RuntimeError if another thread is waiting for its batch, and if ``next`` is called again after an error or
    Ctrl-C: what is left of the epoch would otherwise be lost without a word.
    """

    __slots__ = ("__weakref__", "_batches", "_ended_with")

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._ended_with = ""  # the error

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # Nothing here may keep the batch while the loop uses it, or its memory would be returned late.
        try:
            return next(self._batches)
        except StopIteration:
            if self._ended_with:
                raise RuntimeError(
                    f"this iterator has ended with {self._ended_with}: begin another iteration; after "
                    "loader.load_state_dict(loader.state_dict()), it goes on behind the latest batch"
                ) from None
            raise
        except BaseException as exc:
            if _is_in_use(exc):
                raise RuntimeError(
                    "another thread is waiting for a batch of this iterator: give each thread an iterator of its own, "
                    "which is an epoch of its own, or call next() under a lock"
                ) from None
            self._ended_with = type(exc).__name__
            raise

    def close(self) -> None:
        """End the iteration; calling it twice is harmless."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def _is_in_use(error: BaseException) -> bool:
    """Whether a generator itself raised the error of ``next``, because another thread is in it."""
    trace = error.__traceback__
    return isinstance(error, ValueError) and trace is not None and trace.tb_next is None
