"""Read with one peer once, in this process and in its own environment; the last line printed is the result as JSON.

    python -m benchmarks.remote.measure pack MODULE WORK
    python -m benchmarks.remote.measure load MODULE WORK

``WORK`` is JSON (see ``work.py``). Imports nothing that is not in every peer's environment: numpy.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.process_tree import cpu_seconds
from benchmarks.remote.work import Peer, RemoteWork

__all__ = ["OutputError", "main"]


class OutputError(Exception):
    """A peer gave other samples, another shape or another type than it was asked for."""


def main(arguments: list[str]) -> None:
    """``pack MODULE WORK`` or ``load MODULE WORK``."""
    action, module, values = arguments
    work = RemoteWork.from_json(json.loads(values))
    peer: Any = import_module(f"benchmarks.remote.{module}")
    print(json.dumps(_packed(peer, work) if action == "pack" else _loaded(peer, work)))


def _packed(peer: Peer, work: RemoteWork) -> dict[str, Any]:
    work.packed.mkdir(parents=True)
    begun, cpu = time.perf_counter(), cpu_seconds()
    peer.pack(work)
    size = sum(path.stat().st_size for path in work.packed.rglob("*") if path.is_file())
    return {"size_bytes": size, "wall_s": time.perf_counter() - begun, "cpu_s": cpu_seconds() - cpu}


def _loaded(peer: Peer, work: RemoteWork) -> dict[str, Any]:
    """Whole epochs, each with its samples, seconds and what the server sent; the first includes the opening."""
    epochs: list[dict[str, Any]] = []
    begun, cpu = time.perf_counter(), cpu_seconds()
    first_s = None
    loader = peer.loader(work)
    for _ in range(work.epochs):
        before = _sent(work)
        numbers: list[int] = []
        for images, labels in loader:
            if first_s is None:
                first_s = time.perf_counter() - begun
            if tuple(images.shape) != (len(labels), 3, 224, 224) or np.asarray(images[:1]).dtype != np.uint8:
                raise OutputError(f"a batch of {tuple(images.shape)} {images.dtype}")
            numbers += np.asarray(labels).reshape(-1).tolist()
        now, now_cpu = time.perf_counter(), cpu_seconds()
        gets, sent = (after - then for after, then in zip(_sent(work), before, strict=True))
        epochs.append(
            {"samples": len(numbers), "wall_s": now - begun, "cpu_s": now_cpu - cpu, "gets": gets, "sent_bytes": sent}
        )
        if sorted(numbers) != list(range(work.samples)):
            raise OutputError(f"an epoch of {len(numbers)} samples, {len(set(numbers))} of them different")
        begun, cpu = time.perf_counter(), cpu_seconds()
    return {**epochs[0], "first_batch_s": first_s, "epochs": epochs, "thread_cpu_s": _thread_seconds()}


def _thread_seconds() -> dict[str, float]:
    """CPU seconds of this process's threads, by their names: which of them decode, which fetch."""
    seconds: Counter[str] = Counter()
    for path in Path("/proc/self/task").glob("*/stat"):
        name, _, fields = path.read_text().partition("(")[2].rpartition(")")
        seconds[name] += sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return dict(seconds)


def _sent(work: RemoteWork) -> tuple[int, int]:
    """Requests that the server has answered, and bytes of their bodies; those under way are waited for."""
    if not work.url:
        return 0, 0
    latest = time.monotonic() + 5
    while True:
        with urllib.request.urlopen(f"http://{urlsplit(work.url).netloc}/-/control") as answer:
            started, finished, _, sent = map(int, answer.read().split())
        if started == finished or time.monotonic() > latest:
            return finished, sent
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
