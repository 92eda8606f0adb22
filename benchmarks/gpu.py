"""What a GPU shows, in one command: five figures, a table, and all rounds as JSON in benchmarks/results.

python -m benchmarks.gpu [--rounds 7]                    (some minutes; --device cpu --tiny tries it out anywhere)

1. Normalising against copying on the card, in bytes read and written per second. 2. Copies to it hidden behind steps.
3. The small CNN on CIFAR-like pictures, from a store and from files. 4. ResNet-50 between its two limits. 5. JPEGs
decoded by the GPU. All cases of a round are measured in turn; figures are medians over rounds.
"""

from __future__ import annotations

import datetime
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu_training import Sizes, cifar_cnn, decoding, resnet
from benchmarks.report import write_result
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


RESULTS = Path(__file__).parent / "results"
TINY = Sizes(rounds=1, steps=2, pngs=24, photos=12, batch=4, photo_batch=2, crop=32, short_side=40, workers=(0,))


@click.command()
@click.option("--rounds", default=7, show_default=True, help="Rounds, all cases in turn in each.")
@click.option("--device", default="cuda", show_default=True, help="Where to measure.")
@click.option("--tiny", is_flag=True, help="So little that it only shows that everything runs.")
@click.option("--out", type=click.Path(path_type=Path), help="The JSON; by default in benchmarks/results.")
def main(rounds: int, device: str, tiny: bool, out: Path | None) -> None:
    """Measure, print a table, and keep all rounds."""
    try:
        where = lane_to(device).device
    except ValueError as exc:
        raise click.ClickException(str(exc)) from exc
    torch.backends.cuda.matmul.allow_tf32 = True
    sizes, batch, side = (TINY, 4, 16) if tiny else (Sizes(rounds=rounds), 256, 224)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {
            "gpu": _machine(where),
            "settings": {"sizes": asdict(sizes), "batch": batch, "side": side, "buffers": BUFFERS, "steps": STEPS},
            "normalise": _normalise(where, sizes.rounds, batch, side),
            "overlap": _overlap(where, sizes.rounds, batch, side),
            "loader": _loader(where, sizes.rounds, batch, side, folder),
            "cifar_cnn": cifar_cnn(where, folder, sizes),
            "resnet50": resnet(where, folder, sizes),
            "decoding": decoding(where, folder, sizes),
        }
    Console().print(_table(result))
    path = out or RESULTS / f"{datetime.date.today().isoformat()}-gpu.json"
    write_result(path, result)
    Console().print(f"all rounds: {path}")


def _table(result: dict[str, Any]) -> Table:
    """The figures, and what they should be."""
    table = Table("figure", "measured", "wanted")
    table.add_row("normalise, of copying", f"{result['normalise']['of_copy']['one_pass channels_last']:.3f}", ">= 0.8")
    for name, case in result["overlap"].items():
        table.add_row(f"step, of its limit: {name}", f"{case['prefetcher_of_limit']:.3f}", "<= 1.02")
    table.add_row("waiting for the loader", f"{result['loader']['waiting_share']:.2%}", "< 0.23 %")
    for name, case in result["cifar_cnn"].items():
        use = case["gpu_use_percent"]
        words = f"{case['step_ms']:.2f} ms, {case['loading_share']:.1%} waiting"
        table.add_row(f"CNN: {name}", words if use is None else f"{words}, GPU {use:.0f} %", "")
    for name, rates in result["resnet50"]["images_per_s"].items():
        table.add_row(f"ResNet-50: {name}", f"{statistics.median(rates):,.0f} images/s", "")
    table.add_row("ResNet-50, of its limit", f"{result['resnet50']['of_limit']:.3f}", "")
    decoding = result["decoding"]
    if "left_out" in decoding:
        table.add_row("decoding", decoding["left_out"], "")
        return table
    for name, rates in decoding["images_per_s"].items():
        table.add_row(f"crops, decoded by {name}", f"{statistics.median(rates):,.0f} images/s", "")
    apart = decoding["levels_apart"]
    table.add_row("their pixels apart, levels", f"mean {apart['mean']:.2f}, most {apart['most']}", "")
    return table


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


def _recorded(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """
    ``work`` as a CUDA graph where there is CUDA.

    Its kernels then follow each other at once. In training the host launches them while the device has other work;
    alone they would wait for the host, which takes about as long for one launch as the card for a small batch.
    """
    if device.type != "cuda":
        return work
    work()  # compiles what it calls
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


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
        recorded = _recorded(lambda: [work(place) for place in range(BUFFERS)], device)  # the results rotate too
        return lambda: BUFFERS * moved / _timed(recorded, device)

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
