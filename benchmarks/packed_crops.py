"""RandomResizedCrop(224) + flip from photos as they are, with start points or markers or none, and made smaller.

python -m benchmarks.packed_crops FOLDER [--rounds 5]

The yardstick is what is usual: libjpeg-turbo decodes the whole picture, a scalar resize like Pillow's makes the crop.
Rates are per CPU-second, in one thread; ratios are those of one round, their median and range over the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.rounds import interleaved, run_process
from fastio._native import decode_images, gather_transformed
from fastio.converters import Transcode, open_source, pack
from fastio.store import open_store
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop
from fastio.transforms.fused import Fused
from fastio.types.spans import Spans

__all__ = ["main"]

YARDSTICK = "whole picture by libjpeg-turbo, scalar resize"
NO_JUMP = "--no-jump"
FORMS = {
    "as they are": None,
    NO_JUMP: None,
    "--restart 8": Transcode(restart=8),
    "--short-side 256 --restart 0": Transcode(short_side=256, resized_restart=0),
    "--short-side 256": Transcode(short_side=256),
}
_SIZE = 224


def measure_yardstick(path: str) -> dict[str, float]:
    """One epoch; this process has been told to use neither our entropy decoder nor SIMD in resizing."""
    out, status = np.empty((1, _SIZE, _SIZE, 3), np.uint8), np.zeros(1, np.int32)
    start = np.zeros(1, np.int64)
    fused = Fused([RandomResizedCrop(_SIZE), RandomHorizontalFlip()], seed=0, mode="RGB", is_raw=False, is_fast=False)
    with open_store(path) as store:
        every = np.arange(len(store))
        spans, shapes = store.spans("image", every), store.shapes("image").astype(np.int64)
        rows = fused.plan(every, shapes, epoch=0).rows
        begun = time.process_time()
        for i, (height, width, _) in enumerate(shapes.tolist()):
            pixels = np.empty((1, height, width, 3), np.uint8)
            one = spans.part(i, i + 1)
            decode_images(one, pixels, status, verify=False).wait()
            assert not status.any()
            raw = Spans.of(pixels.reshape(-1), start, np.array([pixels.size], np.int64))
            gather_transformed(
                raw, rows[i : i + 1], out, status, filter=0, fill=b"\0\0\0", height=height, width=width
            ).wait()
            assert not status.any()
        return {"samples": len(store), "cpu_s": time.process_time() - begun}


def measure_loader(path: str) -> dict[str, float]:
    """One epoch of FastLoader in one thread, after one that is not counted."""
    from fastio import FastDataset, FastLoader

    transforms = [RandomResizedCrop(_SIZE), RandomHorizontalFlip()]
    loader = FastLoader(FastDataset(path, mode="RGB"), 64, threads=1, transforms=transforms)
    for _ in loader:
        pass
    loader.set_epoch(0)
    begun = time.process_time()
    samples = sum(len(batch[0]) for batch in loader)
    return {"samples": samples, "cpu_s": time.process_time() - begun}


def _measure(name: str, folder: Path) -> dict[str, float]:
    form = "as they are" if name == YARDSTICK else name
    command = [sys.executable, "-m", "benchmarks.packed_crops", "--measure", name, folder / f"{form}.lmdb"]
    usual = {"FASTIO_ENTROPY": "turbo", "FASTIO_SIMD": "none"} if name == YARDSTICK else {}
    return run_process(command, environment={**os.environ, **usual})


@click.command()
@click.argument("source")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds of fresh processes.")
@click.option("--measure", hidden=True, help="A name: measure the store SOURCE in this process.")
def main(source: str, rounds: int, measure: str | None) -> None:
    """Pack the class folders SOURCE in every form, measure all of them in turn, and print a table."""
    if measure is not None:
        click.echo(json.dumps(measure_yardstick(source) if measure == YARDSTICK else measure_loader(source)))
        return
    table = Table(title="RandomResizedCrop(224) + flip, one thread")
    for heading in ("photos", "B a sample", "per CPU-second", "times the yardstick", "min - max"):
        table.add_column(heading, justify="left" if heading == "photos" else "right")
    with tempfile.TemporaryDirectory() as name:
        folder, sizes = Path(name), {YARDSTICK: 0.0}
        for form, pictures in FORMS.items():
            report = pack(open_source(source), folder / f"{form}.lmdb", pictures=pictures, jump=form != NO_JUMP)
            sizes[form] = report.payload_bytes / report.packed
        results = interleaved([YARDSTICK, *FORMS], lambda name: _measure(name, folder), rounds=rounds).runs
    rates = {name: [run["samples"] / run["cpu_s"] for run in runs] for name, runs in results.items()}
    for name, found in rates.items():
        ratios = sorted(rate / usual for rate, usual in zip(found, rates[YARDSTICK], strict=True))
        each = f"{sizes[name]:,.0f}" if sizes[name] else ""
        spread = f"{ratios[0]:.2f} - {ratios[-1]:.2f}"
        table.add_row(name, each, f"{statistics.median(found):,.0f}", f"{statistics.median(ratios):.2f}", spread)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
