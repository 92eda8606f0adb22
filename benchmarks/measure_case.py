"""Measure one case in this process and print one line of JSON; ``run`` starts a fresh process for each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases import LOADING, OPENING, PACKING, Data, packed_samples, remove_outputs
from benchmarks.process_tree import cpu_seconds

__all__ = ["main"]


def measure_loading(name: str, data: Data, *, threads: int, seconds: float) -> dict[str, Any]:
    """Epochs until ``seconds`` have passed, after one that is not counted."""
    next(iter(LOADING[name](data, threads)))  # imports, and the pages of the files
    start = time.perf_counter()
    loader = LOADING[name](data, threads)
    images, _ = next(iter(loader))
    first_batch_s = time.perf_counter() - start
    shape = list(images.shape)
    del images
    for _ in loader:
        pass
    samples = epochs = 0
    cpu, wall = cpu_seconds(), time.perf_counter()
    while time.perf_counter() - wall < seconds:
        samples += sum(len(labels) for _, labels in loader)
        epochs += 1
    return {
        "samples": samples,
        "epochs": epochs,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": cpu_seconds() - cpu,
        "first_batch_s": first_batch_s,
        "batch_shape": shape,
    }


def measure_packing(name: str, data: Data, *, seconds: float) -> dict[str, Any]:
    """Packings of the same files until ``seconds`` have passed, after one that is not counted."""
    pack: Callable[[Data, Path], None] = PACKING[name]
    out = data.packed / "packing-case"
    total = packed_samples(name, data)
    runs, wall_s, cpu_s = 0, 0.0, 0.0
    while wall_s < seconds or runs < 2:
        remove_outputs(out)
        cpu, wall = cpu_seconds(), time.perf_counter()
        pack(data, out)
        if runs > 0:
            wall_s += time.perf_counter() - wall
            cpu_s += cpu_seconds() - cpu
        runs += 1
    remove_outputs(out)
    return {"samples": total * (runs - 1), "epochs": runs - 1, "wall_s": wall_s, "cpu_s": cpu_s}


def measure_opening(name: str, data: Data, *, seconds: float) -> dict[str, Any]:
    """Openings until ``seconds`` have passed, after one that is not counted; a "sample" of the rates is one opening."""
    opened = OPENING[name](data)
    openings = 0
    cpu, wall = cpu_seconds(), time.perf_counter()
    while time.perf_counter() - wall < seconds:
        OPENING[name](data)
        openings += 1
    wall_s = time.perf_counter() - wall
    return {"samples": openings, "epochs": openings, "wall_s": wall_s, "cpu_s": cpu_seconds() - cpu, "opened": opened}


def main(arguments: list[str]) -> None:
    """``measure_case NAME PNGS LABELS PHOTOS PACKED THREADS SECONDS``."""
    name, pngs, labels, photos, packed, threads, seconds = arguments
    data = Data(Path(pngs), Path(labels), Path(photos), Path(packed))
    if name in LOADING:
        result = measure_loading(name, data, threads=int(threads), seconds=float(seconds))
    elif name in OPENING:
        result = measure_opening(name, data, seconds=float(seconds))
    else:
        result = measure_packing(name, data, seconds=float(seconds))
    print(json.dumps({"case": name, **result}))


if __name__ == "__main__":
    main(sys.argv[1:])
