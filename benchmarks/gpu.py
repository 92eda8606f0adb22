"""What a GPU shows: normalising against copying on the card, and copies to it hidden behind steps. Prints one JSON.

python -m benchmarks.gpu [--rounds 7] > gpu.json        (about a minute; --device cpu --batch 8 --side 32 tries it out)

Rates on the card are bytes read and written per second. All cases of a round are measured in turn; the figures are
medians over rounds, with the fastest and the slowest.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch

from fastio import DevicePrefetcher, FastLoader, create_store
from fastio._native import Buffers
from fastio.device.lane import lane_to
from fastio.schema import COLUMN, RAW, Field, Schema
from fastio.spans import Spans
from fastio.store import SampleBatch
from fastio.transforms import Normalize, ToDtype
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import Target
from fastio.transforms.batch.one_pass import one_pass, plain_pass
from fastio.transforms.plan import BLANK, COLUMNS

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BUFFERS = 8  # rotated: together far more than the card's cache
STEPS = 40
WARM_UP = 5

Case = Callable[[], float]


@click.command()
@click.option("--rounds", default=7, show_default=True, help="Rounds, all cases in turn in each.")
@click.option("--device", default="cuda", show_default=True, help="Where to measure.")
@click.option("--batch", default=256, show_default=True, help="Pictures of a batch.")
@click.option("--side", default=224, show_default=True, help="Their height and width.")
def main(rounds: int, device: str, batch: int, side: int) -> None:
    """Measure and print."""
    try:
        where = lane_to(device).device
    except ValueError as exc:
        raise click.ClickException(str(exc)) from exc
    torch.backends.cuda.matmul.allow_tf32 = True
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "machine": _machine(where),
            "settings": {"rounds": rounds, "batch": batch, "side": side, "buffers": BUFFERS, "steps": STEPS},
            "normalise": _normalise(where, rounds, batch, side),
            "overlap": _overlap(where, rounds, batch, side),
            "loader": _loader(where, rounds, batch, side, Path(folder)),
        }
    print(json.dumps(result, indent=1))


def _machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "threads": torch.get_num_threads()}


def _timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that the current stream takes for ``work``, from an idle start."""
    if device.type != "cuda":
        begun = perf_counter()
        work()
        return perf_counter() - begun
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def _rounds(cases: dict[str, Case], rounds: int) -> dict[str, dict[str, float]]:
    """Median, fastest and slowest of each case, all cases in turn, after one round that is not counted."""
    seen: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            value = case()
            if number:
                seen[name].append(value)
    return {
        name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
        for name, values in seen.items()
    }


def _normalise(device: torch.device, rounds: int, batch: int, side: int) -> dict[str, Any]:
    """Bytes per second of one pass from uint8 to float16, and of a plain copy of as many bytes."""
    shape = (batch, 3, side, side)
    last = [
        torch.randint(0, 256, shape, dtype=torch.uint8, device=device).contiguous(memory_format=torch.channels_last)
        for _ in range(BUFFERS)
    ]
    planar = [images.contiguous() for images in last]
    moved = 3 * last[0].nbytes  # uint8 read, float16 written
    source = [torch.empty(moved // 2, dtype=torch.uint8, device=device) for _ in range(BUFFERS)]
    target = [torch.empty_like(memory) for memory in source]
    finish = ToDtype(torch.float16).after(Normalize(MEAN, STD).after(Finish(torch.uint8)))
    rows = torch.tensor([BLANK] * batch, dtype=torch.int32)
    for name in ("box_w", "box_h", "virtual_w", "virtual_h", "window_w", "window_h"):
        rows[:, COLUMNS.index(name)] = side
    rows[::2, COLUMNS.index("flip")] = 1
    rows[:, COLUMNS.index("place_x")] = torch.arange(batch, dtype=torch.int32) % 9 - 4
    rows = rows.to(device)
    whole = Target(side, side)

    def rate(work: Callable[[int], object]) -> Case:
        return lambda: BUFFERS * moved / _timed(lambda: [work(place) for place in range(BUFFERS)], device)

    rates = _rounds(
        {
            "copy": rate(lambda place: target[place].copy_(source[place])),
            "one_pass channels_last": rate(lambda place: one_pass(last[place], finish)),
            "one_pass contiguous": rate(lambda place: one_pass(planar[place], finish)),
            "one_pass crop flip": rate(lambda place: one_pass(last[place], finish, rows, whole)),
            "torch operations": rate(lambda place: plain_pass(last[place], finish)),
        },
        rounds,
    )
    copy = rates["copy"]["median"]
    return {"bytes_per_s": rates, "of_copy": {name: rate["median"] / copy for name, rate in rates.items()}}


class _Step:
    """Training's stand-in: products of matrices that take about ``seconds`` on the device, and a look at the batch."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        size = 2048 if device.type == "cuda" else 128
        self._matrix = torch.randn((size, size), device=device) / size
        self._seen = torch.zeros((), device=device, dtype=torch.float32)
        self._products = 20
        for _ in range(3):
            self.run(None)
        taken = _timed(lambda: self.run(None), device)
        self._products = max(1, round(self._products * seconds / taken))

    def run(self, batch: Any) -> None:
        """One step; it begins with reading a little of the batch."""
        if batch is not None:
            self._seen += batch[0][0, 0, 0, 0]
        product = self._matrix
        for _ in range(self._products):
            product = self._matrix @ product


def _overlap(device: torch.device, rounds: int, batch: int, side: int) -> dict[str, Any]:
    """Milliseconds of a step from pinned batches: copies and training alone, one after the other, and overlapped."""
    host = [_pinned(torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8), device) for _ in range(BUFFERS)]
    batches = [[images, _pinned(torch.arange(batch), device)] for images in host]
    resident = [[part.to(device) for part in batches[0]]]

    def copied(source: Iterable[Any]) -> Iterator[Any]:
        for each in source:
            yield [part.to(device, non_blocking=True) for part in each]

    def repeated() -> Iterator[Any]:
        return islice(cycle(batches), STEPS)

    copy_s = _timed(lambda: [None for _ in copied(batches)], device) / BUFFERS
    result: dict[str, Any] = {}
    for name, share in (("training takes 3 times the copy", 3.0), ("the copy takes twice the training", 0.5)):
        step = _Step(device, copy_s * share)

        def per_step(source: Callable[[], Iterable[Any]], step: _Step | None = step) -> Case:
            return lambda: _epoch_ms(source(), step, device)

        steps = _rounds(
            {
                "copy only": per_step(lambda: copied(repeated()), None),
                "train only": per_step(lambda: islice(cycle(resident), STEPS)),
                "one after the other": per_step(lambda: copied(repeated())),
                "prefetcher": per_step(lambda: DevicePrefetcher(repeated(), device)),
            },
            rounds,
        )
        limit = max(steps["copy only"]["median"], steps["train only"]["median"])
        result[name] = {"step_ms": steps, "prefetcher_of_limit": steps["prefetcher"]["median"] / limit}
    return result


def _epoch_ms(batches: Iterable[Any], step: _Step | None, device: torch.device) -> float:
    """Milliseconds a step, the first ones not counted."""
    iterator = iter(batches)

    def work() -> None:
        count = 0
        for batch in iterator:
            if step is not None:
                step.run(batch)
            count += 1
        assert count == STEPS - WARM_UP

    for batch in islice(iterator, WARM_UP):
        if step is not None:
            step.run(batch)
    return _timed(work, device) / (STEPS - WARM_UP) * 1e3


def _loader(device: torch.device, rounds: int, batch: int, side: int, folder: Path) -> dict[str, Any]:
    """FastLoader(device=...) from a store of raw pictures: what a step waits for data, in the steady state."""
    store = _raw_store(folder / "raw.h5", 16 * batch, side)
    finish = [Normalize(MEAN, STD), ToDtype(torch.float16)]
    with FastLoader(store, batch, device=device, transforms=finish, shuffle=True) as loader:
        for _ in loader:
            pass
        load_ms = _timed(lambda: [None for _ in loader], device) / len(loader) * 1e3
        step = _Step(device, 2e-3 * load_ms)
        resident = next(iter(loader))

        def loaded() -> float:
            return _timed(lambda: [step.run(each) for each in loader], device) / len(loader) * 1e3

        def trained() -> float:
            return _timed(lambda: [step.run(resident) for _ in range(len(loader))], device) / len(loader) * 1e3

        steps = _rounds({"loader and training": loaded, "training only": trained}, rounds)
    whole, training = (steps[name]["median"] for name in ("loader and training", "training only"))
    return {"load_ms": load_ms, "step_ms": steps, "waiting_share": (whole - training) / whole}


def _raw_store(path: Path, count: int, side: int) -> Path:
    size = side * side * 3
    pixels = np.random.default_rng(0).integers(0, 256, count * size, np.uint8)
    starts = np.arange(count, dtype=np.int64) * size
    spans = Spans(Buffers([pixels]), np.zeros(count, np.int32), starts, np.full(count, size, np.int64))
    schema = Schema((Field("image", RAW, "|u1", (side, side, 3)), Field("label", COLUMN, "<i8", ())))
    with create_store(path, schema) as writer:
        keys = [f"{number:08d}" for number in range(count)]
        writer.append(SampleBatch(keys, {"image": spans}, {"label": np.arange(count, dtype=np.int64)}))
    return path


def _pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.pin_memory() if device.type == "cuda" else tensor


if __name__ == "__main__":
    main()
