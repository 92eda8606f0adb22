"""Limits the size of a trace: one that is too large to open loses its last steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastio.measure.trace.trace import STEP_PREFIX

__all__ = ["shorten_trace"]


def shorten_trace(path: Path, *, max_bytes: int) -> int:
    """
    Cut a ``.json`` trace after the last step with which it stays below ``max_bytes``, but keep the first one.

    Returns the number of steps cut: 0 if the file was small enough, which then stays unchanged.
    """
    size = path.stat().st_size
    if size <= max_bytes:
        return 0
    document = json.loads(path.read_bytes())
    events: list[dict[str, Any]] = document["traceEvents"]
    ends = sorted(
        float(event["ts"]) + float(event["dur"])
        for event in events
        if event.get("ph") == "X" and event.get("cat") == "user_annotation" and event["name"].startswith(STEP_PREFIX)
    )
    times = [float(event["ts"]) if event.get("ph") != "M" else 0.0 for event in events]
    for kept in range(len(ends) - 1, 0, -1):
        chosen = [event for event, time in zip(events, times, strict=True) if time < ends[kept - 1]]
        if kept == 1 or size * len(chosen) / len(events) <= max_bytes:
            document["traceEvents"] = chosen
            path.write_text(json.dumps(document))
            return len(ends) - kept
    return 0  # a single step
