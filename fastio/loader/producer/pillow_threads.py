"""Threads in which Pillow decodes what native code leaves to it, beside the native threads and the training loop."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from fastio._native import BatchCounts
from fastio.dataset.undecoded import Settled, UndecodedRows
from fastio.types.metrics import PictureCounts

__all__ = ["PendingRows", "PillowCount", "PillowThreads"]

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_ENOUGH = 5_000  # pictures, after which the share of those for Pillow is known well enough to be told
_warned_of: set[str] = set()  # stores: training and validation loaders, and those of a sweep, read the same ones


class PendingRows:
    """Rows of one batch that threads are settling."""

    def __init__(self, rows: UndecodedRows, futures: list[Future[None]]) -> None:
        self._rows = rows
        self._futures = futures

    def result(self) -> Settled:
        """Wait for the threads. Raises what a transform raised in one of them."""
        for future in self._futures:
            future.result()
        return self._rows.result()


class PillowThreads:
    """
    Up to ``threads`` threads that decode, and one that waits for native jobs; none before the first picture.

    Pillow releases the GIL while it decodes and resizes, so they work in parallel. Threads do not come along into a
    forked child, which needs an object of its own.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._decoders = ThreadPoolExecutor(threads, thread_name_prefix="fastio-pillow")
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="fastio-pillow-wait")
        self.has_begun = False  # whether a picture was left to Pillow so far

    def settle(self, rows: UndecodedRows) -> PendingRows:
        """Begin to settle these rows, behind those of earlier calls; errors alone are no work for threads."""
        count = min(self._threads, rows.for_pillow)
        if count == 0:
            rows.settle()
        elif not self.has_begun:
            self.has_begun = True
            _let_one_thread_decode_one_avif()
        return PendingRows(rows, [self._decoders.submit(rows.settle) for _ in range(count)])

    def call_later(self, begin: Callable[[], Result]) -> Future[Result]:
        """Call ``begin``, which waits for a native job, in a thread, behind earlier calls."""
        return self._waiter.submit(begin)

    def close(self) -> None:
        """Join the threads; what was begun is finished first. Call it when no native job is under way."""
        self._waiter.shutdown()
        self._decoders.shutdown()


def _let_one_thread_decode_one_avif() -> None:
    """
    Let Pillow decode each AVIF in one thread, unless the program has said how many it wants.

    By default it starts as many as there are CPUs for each picture: of 320x240 pixels, 64 threads take three times the
    CPU time of one (5.1 and 1.7 ms), and here pictures are decoded side by side.
    """
    from PIL import Image

    Image.init()
    plugin = sys.modules.get("PIL.AvifImagePlugin")
    if plugin is not None and getattr(plugin, "DEFAULT_MAX_THREADS", 1) == 0:
        plugin.DEFAULT_MAX_THREADS = 1  # type: ignore[attr-defined]


class PillowCount:
    """
    Counts the pictures that Pillow decoded, and logs one warning with that count.

    The warning comes at the end of the first epoch (before the second, if native code made the last batch), after 5,000
    pictures, or when the loader is closed, whichever is first; never if there were none, and once for each store that
    the process reads.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.native = BatchCounts()  # of batches that Python has not seen
        self._counting = threading.Lock()  # a loader may have iterations in several threads
        self._pictures = 0
        self._kinds: Counter[str] = Counter()
        self._is_told = False

    def add(self, pictures: int, kinds: Counter[str] | None = None, *, is_last: bool = False) -> None:
        """Count a batch; ``kinds`` are those that Pillow decoded, ``is_last`` says that the epoch ends with it."""
        with self._counting:
            self._pictures += pictures
            if kinds:
                self._kinds.update(kinds)
        if self._kinds and not self._is_told and (is_last or self._total >= _ENOUGH):
            self.tell()

    @property
    def _total(self) -> int:
        return self._pictures + self.native.samples

    @property
    def counts(self) -> PictureCounts:
        """The pictures so far; those of a GPU, which the loader counts, are among the native ones."""
        with self._counting:
            by_pillow = dict(self._kinds)
            return PictureCounts(native=self._total - sum(by_pillow.values()), by_pillow=by_pillow)

    def tell(self) -> None:
        """Log the warning, once."""
        if self._is_told or not self._kinds:
            return
        self._is_told = True
        if self._path in _warned_of:
            return
        _warned_of.add(self._path)
        by_count = sorted(self._kinds.items(), key=lambda pair: (-pair[1], pair[0]))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in by_count)
        if any(kind.endswith(" mask") for kind in self._kinds):
            remedy = "save masks as PNGs before packing"
        else:
            remedy = "pack with --resize HxW, which stores PNGs of that size (with --raw, pixels)"
        log.warning(
            "%s: Pillow decodes %s (%s), because fastio has no faster decoder for such files. To load faster, %s",
            self._path,
            _share(self._kinds.total(), self._total),
            kinds,
            remedy,
        )


def _share(count: int, total: int) -> str:
    """
    Say how many of the pictures read so far these are.

    >>> _share(30, 40), _share(40, 40), _share(1, 1)
    ('30 of the first 40 pictures', 'all of the first 40 pictures', 'the first picture')
    """
    if total == 1:
        return "the first picture"
    return f"{'all' if count == total else f'{count:,}'} of the first {total:,} pictures"
