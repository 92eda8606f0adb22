"""Adds what native threads did during profiled steps to the profiler's trace."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from fastio import _native

__all__ = ["NATIVE", "NativeRange", "add_native_ranges", "record_native_ranges", "recorded_native_ranges"]

NATIVE = "fastio_native"  # the category of these events; none of the eight rows counts it
_MOST = 200_000  # 8 MB; one range per thread and batch
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_EVENTS = re.compile(rb'"traceEvents":\s*\[')

NativeRange = tuple[int, int, int, str, int]  # thread id, start and stop in ns as in time.time_ns(), what, samples


def record_native_ranges() -> None:
    """Record what the threads of all pools of this process work on, until ``recorded_native_ranges``."""
    _native.record_ranges(_MOST)


def recorded_native_ranges() -> list[NativeRange]:
    """Stop recording, and return the ranges."""
    ranges, _ = _native.recorded_ranges()
    return ranges


def add_native_ranges(path: Path, ranges: Sequence[NativeRange]) -> None:
    """
    Add the ranges to a ``.json`` trace of torch.profiler of this process, each on its thread's line.

    Both count CLOCK_REALTIME: the trace in microseconds from ``baseTimeNanoseconds``; traces of an older torch lack
    that key and count from 1970.
    """
    if not ranges:
        return
    data = path.read_bytes()
    base = _BASE.search(data)
    opened = _EVENTS.search(data)
    if opened is None:
        return
    base_ns = 0 if base is None else int(base[1])
    pid = os.getpid()
    threads = sorted({thread for thread, *_ in ranges})
    events: list[dict[str, object]] = [
        {
            "ph": "M",
            "name": "thread_name",
            "ts": 0,
            "pid": pid,
            "tid": thread,
            "args": {"name": f"fastio native {number}"},
        }
        for number, thread in enumerate(threads)
    ]
    for thread, start_ns, stop_ns, what, samples in ranges:
        times = {"ts": (start_ns - base_ns) / 1e3, "dur": (stop_ns - start_ns) / 1e3}
        number = {"pid": pid, "tid": thread}
        events.append({"ph": "X", "cat": NATIVE, "name": what, **times, **number, "args": {"samples": samples}})
    ours = json.dumps(events)[1:-1].encode()
    is_empty = data[opened.end() :].lstrip().startswith(b"]")
    path.write_bytes(data[: opened.end()] + ours + (b"" if is_empty else b",") + data[opened.end() :])
