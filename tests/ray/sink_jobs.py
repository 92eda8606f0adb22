"""What the tests of Sink run in the driver of a cluster: small datasets of Ray Data, and tasks that die."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ray.data

from fastio.ray import Sink


def rows(count: int) -> list[dict[str, Any]]:
    """Rows of a text, a number and an array."""
    return [
        {"name": f"k{i:05d}", "text": f"text {i}", "n": i, "scores": np.arange(3, dtype=np.float32) + i}
        for i in range(count)
    ]


def write(
    path: str, count: int, blocks: int, change: Any = None, args: tuple[Any, ...] = (), **options: Any
) -> Mapping[str, Any]:
    """Write rows in blocks, each changed by ``change(row, *args)``; returns the report as a dict."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    fields = {"text": "text", "n": "int", "scores": ("float32", (3,))}
    dataset = ray.data.from_items(rows(count), override_num_blocks=max(1, blocks))
    if change is not None:
        dataset = dataset.map(change, fn_args=args)
    sink = Sink(path, **({"fields": fields, "key": "name"} | options))
    dataset.write_datasink(sink)
    report = sink.report
    return {"packed": report.packed, "skipped": report.skipped, "shards": report.shards, "text": str(report)}


def write_photo(path: str, photo: bytes, **options: Any) -> None:
    """Write one picture."""
    ray.data.from_items([{"image": photo}]).write_datasink(Sink(path, {"image": "image"}, **options))


def write_in_folder(folder: str, path: str, count: int, blocks: int) -> None:
    """Write rows to a path that is relative to a folder."""
    with contextlib.chdir(folder):
        write(path, count, blocks)


def without_number(row: dict[str, Any], bad: list[int]) -> dict[str, Any]:
    """Take the number from some rows."""
    return row | {"n": None} if row["n"] in bad else row


def only_above(row: dict[str, Any], limit: int) -> dict[str, Any]:
    """Make numbers of later rows fractions, which other tasks do not see."""
    return row | {"n": row["n"] / 4} if row["n"] >= limit else row


def same_name(row: dict[str, Any], count: int) -> dict[str, Any]:
    """Names that come again after ``count`` rows."""
    return row | {"name": f"k{row['n'] % count:05d}"}


def dying(row: dict[str, Any], folder: str, deaths: list[int]) -> dict[str, Any]:
    """Kill the worker at some rows, once each."""
    if row["n"] in deaths:
        try:
            (Path(folder) / f"died-{row['n']}").touch(exist_ok=False)
        except FileExistsError:
            return row
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def failing(row: dict[str, Any], death: int) -> dict[str, Any]:
    """Fail at a row, whenever it comes."""
    if row["n"] == death:
        raise RuntimeError("cannot be computed")
    return row
