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
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.process_tree import cpu_seconds
from benchmarks.remote.work import ROW_IDS, SIDE, Peer, RemoteWork, RowPeer

__all__ = ["OutputError", "main"]


class OutputError(Exception):
    """A peer gave other samples, another shape or another type than it was asked for."""


def main(arguments: list[str]) -> None:
    """``pack MODULE WORK`` or ``load MODULE WORK``."""
    action, module, values = arguments
    work = RemoteWork.from_json(json.loads(values))
    peer: Any = import_module(f"benchmarks.remote.{module}")
    if action == "pack":
        result = _packed(peer, work)
    else:
        result = _rows_loaded(peer, work) if work.shards else _loaded(peer, work)
    print(json.dumps(result))


def _packed(peer: Any, work: RemoteWork) -> dict[str, Any]:
    work.packed.mkdir(parents=True)
    begun, cpu = time.perf_counter(), cpu_seconds()
    (peer.pack_rows if work.shards else peer.pack)(work)
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


def _rows_loaded(peer: RowPeer, work: RemoteWork) -> dict[str, Any]:
    """An epoch of small samples, or a batch of each reader: none comes twice, and how well an epoch was shuffled."""
    parts: list[Any] = []
    begun, cpu = time.perf_counter(), cpu_seconds()
    first_s = None
    for batch in _reader_batches(peer, work) if work.readers else peer.rows(work):
        if first_s is None:
            first_s = time.perf_counter() - begun
        parts.append(_numbers(np.asarray(batch), is_pictures=work.pictures))
    spent = {"wall_s": time.perf_counter() - begun, "cpu_s": cpu_seconds() - cpu, "first_batch_s": first_s}
    numbers = np.concatenate(parts)
    wanted = work.readers * work.row_batch if work.readers else work.samples
    if len(numbers) != wanted or len(np.unique(numbers)) != wanted:
        raise OutputError(f"{len(numbers)} rows, {len(np.unique(numbers))} of them different; expected {wanted}")
    if not work.readers:  # the mean distance of two random places is a third of all
        moved, apart = np.abs(numbers - np.arange(wanted)), np.abs(np.diff(numbers))
        spent |= {"moved": moved.mean() * 3 / wanted, "apart": apart.mean() * 3 / wanted}
    return {"samples": wanted, **spent}


def _numbers(batch: Any, *, is_pictures: bool) -> Any:
    """Which samples a batch has, as their first four bytes say: (B,) int64."""
    if is_pictures and batch.shape[1:] == (3, SIDE, SIDE):
        batch = batch.transpose(0, 2, 3, 1)
    expected = ((SIDE, SIDE, 3), 1) if is_pictures else ((ROW_IDS,), 2)
    if (batch.shape[1:], batch.dtype.itemsize) != expected:
        raise OutputError(f"a batch of {batch.shape} {batch.dtype}")
    data = np.ascontiguousarray(batch).reshape(len(batch), -1).view(np.uint8)
    return np.ascontiguousarray(data[:, :4]).view(np.uint32)[:, 0].astype(np.int64)


def _reader_batches(peer: RowPeer, work: RemoteWork) -> Iterator[Any]:
    for reader in range(work.readers):
        batches = iter(peer.rows(replace(work, reader=reader)))
        yield next(batches)
        del batches


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
    address = urlsplit(work.url)
    control = f"{'https' if address.scheme == 'https' else 'http'}://{address.netloc}/-/control"
    while True:
        with urllib.request.urlopen(control) as answer:
            started, finished, _, sent = map(int, answer.read().split())
        if started == finished or time.monotonic() > latest:
            return finished, sent
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
