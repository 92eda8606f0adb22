"""Threads that decode one large photo together, when Python code asks a picture for its pixels."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from fastio._native import ThreadPool
from fastio.machine import available_cpus
from fastio.types.spans import Spans

__all__ = ["free_threads"]

_LARGE = 1 << 20  # pixels; the native core decodes smaller pictures in one thread
_MOST = 8

_in_use = threading.Lock()


@contextmanager
def free_threads(spans: Spans, pixel_count: int) -> Generator[ThreadPool | None, None, None]:
    """
    Lend the threads that decode the one picture ``spans`` in bands; None if the calling thread decodes it alone.

    Alone: pictures without places to start within them (``--jump``, ``--restart``); small ones; all while another
    Python thread has the threads; all if this process has one CPU, maybe as one of many ranks on its node; and all in
    a process that another Python process has started for its work, as DataLoader does: these share the CPUs already.
    """
    if not _are_of_use(spans, pixel_count) or not _in_use.acquire(blocking=False):
        yield None
        return
    try:
        yield _threads(os.getpid(), min(available_cpus(), _MOST))
    finally:
        _in_use.release()


def _are_of_use(spans: Spans, pixel_count: int) -> bool:
    if pixel_count < _LARGE or spans.intervals is None or not spans.intervals.sizes.any():
        return False
    return multiprocessing.parent_process() is None and available_cpus() > 1


@cache
def _threads(process: int, count: int) -> ThreadPool:
    """The threads of a process; a copy that was made by fork has none of them, and gets its own."""
    del process
    return ThreadPool(count)
