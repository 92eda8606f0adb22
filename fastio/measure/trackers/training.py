"""The figures of a training, and the thread that hands them to a tracker, so that training never waits for one."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Full, Queue
from typing import Any

from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figure, Figures, Tracker
from fastio.types.metrics import LoaderStats
from fastio.types.units import counted

__all__ = [
    "StepReport",
    "TrackerThread",
]


_seconds = partial(Figure, unit="seconds")
_total = partial(Figure, kind="total")


class StepReport:
    """
    Collects the steps of a training and hands the figures of every ``every`` of them to trackers.

    The training's thread computes the figures (pure Python: its cost is in ``benchmarks/step_timer.py``); each tracker
    writes in a thread of its own. At the end of the process, or with ``close()``, the steps of an unfinished window are
    written too.
    """

    def __init__(self, trackers: Sequence[Tracker], *, every: int, steps_before: int) -> None:
        self._every = every
        self._labels = (("rank", str(rank_and_world()[0])),)
        self._loader: weakref.ref[Any] | None = None
        self._stats: LoaderStats | None = None
        self._samples: list[int] = []  # of each step; steps whose times are not known yet come last
        self._steps: list[tuple[bool, float, float]] = []
        self._totals = _Totals(steps_before)
        self._tokens = _Tokens()
        self._threads = [TrackerThread(tracker) for tracker in trackers]
        atexit.register(self.close)

    def watch(self, loader: object) -> None:
        """Write the counters of this loader from now on, if it has any (``LoaderStats``); it is not kept alive."""
        stats = getattr(loader, "stats", None)
        self._stats = stats if isinstance(stats, LoaderStats) else None
        self._loader = None if self._stats is None else weakref.ref(loader)

    def trained(self, samples: int) -> None:
        """Note the samples of a step that has ended; its times follow by ``add``, once they are known."""
        self._samples.append(samples)

    def add(self, step: tuple[bool, float, float]) -> None:
        """Add a step: whether it is the first of its epoch, its seconds of loading and of training."""
        self._steps.append(step)
        if len(self._steps) >= self._every:
            self._write()

    def close(self) -> None:
        """Write what is left, and close all trackers. Calling it twice is harmless."""
        atexit.unregister(self.close)
        if self._steps:
            self._write()
        for thread in self._threads:
            thread.close()

    def _write(self) -> None:
        steps, self._steps = self._steps, []
        samples = sum(self._samples[: len(steps)])
        del self._samples[: len(steps)]
        seconds = self._totals.add(steps, samples)
        figures = [*_window_figures(steps, samples, seconds), *self._totals.figures()]
        loader = None if self._loader is None else self._loader()
        stats = self._stats if loader is None else loader.stats  # the same object, brought up to date
        if stats is not None:
            figures += [*_loader_figures(stats), *self._tokens.figures(stats, seconds)]
        record = Figures(self._totals.steps, time.time(), tuple(figures), self._labels)
        for thread in self._threads:
            thread.put(record)


@dataclass(slots=True)
class _Totals:
    """Sums over all steps."""

    steps: int
    samples: int = 0
    epochs: int = 0
    loading_s: float = 0.0
    first_batches_s: float = 0.0
    training_s: float = 0.0

    def add(self, steps: Sequence[tuple[bool, float, float]], samples: int) -> float:
        """Add a window of steps; returns its seconds."""
        first_s = sum(loading for is_first, loading, _ in steps if is_first)
        loading_s = sum(loading for _, loading, _ in steps)
        training_s = sum(training for _, _, training in steps)
        self.steps += len(steps)
        self.samples += samples
        self.epochs += sum(is_first for is_first, _, _ in steps)
        self.loading_s += loading_s - first_s
        self.first_batches_s += first_s
        self.training_s += training_s
        return loading_s + training_s

    def figures(self) -> Iterator[Figure]:
        yield _total("steps", self.steps, "", "Steps trained.")
        yield _total("samples", self.samples, "", "Samples trained on.")
        yield _total("epochs", self.epochs, "", "Epochs begun.")
        yield _total("loading", self.loading_s, "seconds", "Time waited for batches, first ones of epochs aside.")
        yield _total("first_batches", self.first_batches_s, "seconds", "Time waited for the first batches of epochs.")
        yield _total("training", self.training_s, "seconds", "Time of training on batches.")


def _window_figures(steps: Sequence[tuple[bool, float, float]], samples: int, seconds: float) -> Iterator[Figure]:
    """Yield what one window of steps says; waits for first batches of epochs count only in rates, as in StepSummary."""
    loading = sorted(loading for is_first, loading, _ in steps if not is_first)
    training = sorted(training for _, _, training in steps)
    if loading:
        yield _seconds("loading_median", _quantile(loading, 0.5), meaning="Wait for a batch, median of recent steps.")
        yield _seconds("loading_p95", _quantile(loading, 0.95), meaning="Wait for a batch, 95th percentile.")
        yield _seconds("loading_max", loading[-1], meaning="Longest wait for a batch among recent steps.")
    yield _seconds("training_median", _quantile(training, 0.5), meaning="Training on a batch, median of recent steps.")
    yield _seconds("training_p95", _quantile(training, 0.95), meaning="Training on a batch, 95th percentile.")
    steady_s = sum(loading) + sum(training)
    if steady_s > 0:
        share = sum(loading) / steady_s
        yield Figure("loading", share, "ratio", "Share of recent time waited for batches; above 0.1, loading limits.")
    if seconds > 0:
        yield Figure("samples", samples / seconds, "per_second", "Samples trained on per second.", "rate")
        yield Figure("steps", len(steps) / seconds, "per_second", "Steps per second.", "rate")


def _loader_figures(stats: LoaderStats) -> Iterator[Figure]:
    yield Figure("loader_threads", stats.threads, "", "Threads that decode.")
    yield Figure("loader_buffers", stats.buffer_bytes, "bytes", "Memory of batch buffers: in progress, in use, free.")
    yield Figure("loader_batch", stats.batch_bytes, "bytes", "Size of the largest batch so far.")


class _Tokens:
    """Token ids that a loader has given: growth since the last window, and the sum over all loaders."""

    def __init__(self) -> None:
        self._stats: LoaderStats | None = None
        self._tokens = self._slots = self._total = 0

    def figures(self, stats: LoaderStats, seconds: float) -> Iterator[Figure]:
        if stats is not self._stats:  # another loader: its counters began at 0
            self._stats, self._tokens, self._slots = stats, 0, 0
        tokens, slots = stats.tokens - self._tokens, stats.slots - self._slots
        self._tokens, self._slots = stats.tokens, stats.slots
        self._total += tokens
        if self._total:
            yield _total("tokens", self._total, "", "Tokens in batches.")
        if slots:
            yield Figure("padding", 1 - tokens / slots, "ratio", "Share of recent batches' slots without a token.")
        if tokens and seconds > 0:
            yield Figure("tokens", tokens / seconds, "per_second", "Tokens in batches per second.", "rate")


def _quantile(ascending: Sequence[float], share: float) -> float:
    """
    Return the value below which this share of the values lies, interpolated linearly as numpy does.

    >>> _quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    position = share * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (position - below) * (ascending[above] - ascending[below])


# Hands figures to a tracker in a thread of its own, so that a training waits neither for disks nor for servers.

_WAITING = 64  # records that wait for a slow tracker; later ones are dropped
_CLOSE_S = 10.0  # seconds that close() gives a tracker to write what waits

_log = logging.getLogger(__name__)


class TrackerThread:
    """
    Writes figures to one tracker, in order.

    If the tracker fails, or is so slow that figures have to be dropped, ``warn`` gets one line. Later figures are
    still tried, and ``close`` says how many are missing.
    """

    def __init__(self, tracker: Tracker, *, warn: Callable[[str], None] = _log.warning) -> None:
        self._tracker = tracker
        self._warn = warn
        self._waiting: Queue[Figures | None] = Queue(_WAITING)
        self._pid = os.getpid()
        self._put = self._written = 0
        self._has_warned = self._is_closed = False
        self._lock = threading.Lock()  # both the training and the thread warn
        self._thread = threading.Thread(target=self._run, name="fastio tracker", daemon=True)
        self._thread.start()

    def put(self, figures: Figures) -> None:
        """Have figures written soon. Never blocks. After ``close`` nothing is written."""
        if self._is_closed:
            return
        self._put += 1
        try:
            self._waiting.put_nowait(figures)
        except Full:
            self._warn_once(f"is too slow: {_WAITING} writes wait for it")

    def close(self) -> None:
        """
        Write what waits and close the tracker, within ten seconds. Calling it twice is harmless.
        """
        if self._is_closed or os.getpid() != self._pid:  # a forked process has the object, but not its thread
            return
        self._is_closed = True
        ends = time.monotonic() + _CLOSE_S
        with suppress(Full):
            self._waiting.put(None, timeout=_CLOSE_S)
            self._thread.join(max(0.0, ends - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"{self._tracker} has not finished after {_CLOSE_S:.0f} s and is left behind")
        missing = self._put - self._written
        if missing:
            self._warn(f"{self._tracker}: {missing} of {counted(self._put, 'write')} did not arrive")

    def _run(self) -> None:
        while (figures := self._waiting.get()) is not None:
            try:
                self._tracker.write(figures)
                self._written += 1
            except Exception as exc:  # trackers are other people's code: whatever they raise, the training goes on
                self._warn_once(f"failed: {_reason(exc)}")
        try:
            self._tracker.close()
        except Exception as exc:
            self._warn(f"{self._tracker} could not be closed: {_reason(exc)}")

    def _warn_once(self, problem: str) -> None:
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        self._warn(f"{self._tracker} {problem}; figures are missing there, training goes on")


def _reason(error: Exception) -> str:
    """Return the kind of an error and what it says, as one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())
