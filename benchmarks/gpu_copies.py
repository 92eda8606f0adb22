"""What a GPU shows without networks: normalising while copying, copies during steps, waiting for a loader."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_sizes import BUFFERS, Case, Sizes, finish, in_rounds, timed
from fastio import DevicePrefetcher, FastLoader, StepTimer
from fastio.store import SampleBatch, create_store
from fastio.transforms import Normalize, ToDtype
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import RenderTarget
from fastio.transforms.batch.one_pass import one_pass, plain_pass
from fastio.transforms.plan import BLANK, COLUMNS
from fastio.types.schema import COLUMN, RAW, Field, Schema
from fastio.types.spans import Spans

__all__ = ["loader", "normalise", "overlap"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARM_UP = 8  # steps until copies, steps and host keep their distance
AHEAD = 4  # steps behind the measured ones, so that something is copied ahead at the end as at the beginning


def normalise(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Bytes per second of one pass from uint8 to float16, and of a plain copy of as many bytes, on the card."""
    batch, side = sizes.transfer_batch, sizes.side
    planar = [torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8, device=device) for _ in range(BUFFERS)]
    last = [images.contiguous(memory_format=torch.channels_last) for images in planar]
    moved = 3 * last[0].nbytes  # uint8 read, float16 written
    source = [torch.zeros(moved // 2, dtype=torch.uint8, device=device) for _ in range(BUFFERS)]
    target = [torch.zeros_like(memory) for memory in source]
    to_half = ToDtype(torch.float16).after(Normalize(MEAN, STD).after(Finish(torch.uint8)))
    rows, whole = _moved_and_mirrored(batch, side).to(device), RenderTarget(side, side)

    def rate(work: Callable[[int], object]) -> Case:
        recorded = _recorded(lambda: [work(place) for place in range(BUFFERS)], device)  # the results rotate too
        return lambda: sizes.repeats * BUFFERS * moved / timed(partial(_repeat, recorded, sizes.repeats), device)

    rates = in_rounds(
        {
            "copy": rate(lambda place: target[place].copy_(source[place])),
            "one_pass channels_last": rate(lambda place: one_pass(last[place], to_half)),
            "one_pass contiguous": rate(lambda place: one_pass(planar[place], to_half)),
            "one_pass crop flip": rate(lambda place: one_pass(last[place], to_half, rows, whole)),
            "torch operations": rate(lambda place: plain_pass(last[place], to_half)),
        },
        sizes.rounds,
    )
    copy = rates["copy"]["median"]
    of_copy = {name: rate["median"] / copy for name, rate in rates.items()}
    return {"bytes_per_s": rates, "of_copy": of_copy, "bytes_rotated": BUFFERS * moved}


def _moved_and_mirrored(batch: int, side: int) -> torch.Tensor:
    """Plans of whole pictures, moved by up to four pixels, every other one mirrored."""
    rows = torch.tensor([BLANK] * batch, dtype=torch.int32)
    for name in ("box_w", "box_h", "virtual_w", "virtual_h", "window_w", "window_h"):
        rows[:, COLUMNS.index(name)] = side
    rows[::2, COLUMNS.index("flip")] = 1
    rows[:, COLUMNS.index("place_x")] = torch.arange(batch, dtype=torch.int32) % 9 - 4
    return rows


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


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


class _Step:
    """Training's stand-in: products of matrices that take about ``seconds`` on the device, and a look at the batch."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        size = 2048 if device.type == "cuda" else 128
        self._matrix = torch.randn((size, size), device=device).to(torch.bfloat16) / size
        self._seen = torch.zeros((), device=device, dtype=torch.float32)
        self._products = 100
        for _ in range(2):  # the first makes ready what multiplies
            taken = timed(lambda: self.run(None), device)
        self._products = max(1, round(self._products * seconds / taken))

    def run(self, batch: Any) -> None:
        """One step; it begins with reading a little of the batch."""
        if batch is not None:
            self._seen += batch[0][0, 0, 0, 0]
        product = self._matrix
        for _ in range(self._products):
            product = self._matrix @ product


def overlap(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of a step from pinned batches: copies and training alone, one after the other, and overlapped."""
    batch, shape = sizes.transfer_batch, (sizes.transfer_batch, 3, sizes.side, sizes.side)
    host = [_pinned(torch.randint(0, 256, shape, dtype=torch.uint8), device) for _ in range(BUFFERS)]
    batches = [[images, _pinned(torch.arange(batch), device)] for images in host]
    resident = [[part.to(device) for part in batches[0]]]
    count = WARM_UP + sizes.transfer_steps + AHEAD

    def copied(source: Iterable[Any]) -> Iterator[Any]:
        for each in source:
            yield [part.to(device, non_blocking=True) for part in each]

    def endless(source: list[Any]) -> Iterator[Any]:
        return islice(cycle(source), count)

    for _ in range(2):  # the first takes memory from the driver
        copy_s = timed(lambda: [None for _ in copied(batches)], device) / BUFFERS
    result: dict[str, Any] = {}
    for name, share in (("training takes 3 times the copy", 3.0), ("the copy takes twice the training", 0.5)):
        step = _Step(device, copy_s * share)

        def per_step(source: Callable[[], Iterable[Any]], step: _Step | None = step) -> Case:
            return lambda: _step_ms(source(), step, device, sizes.transfer_steps)

        steps = in_rounds(
            {
                "copy only": per_step(lambda: copied(endless(batches)), None),
                "train only": per_step(lambda: endless(resident)),
                "one after the other": per_step(lambda: copied(endless(batches))),
                "prefetcher": per_step(lambda: DevicePrefetcher(endless(batches), device)),
            },
            sizes.rounds,
        )
        limit = max(steps["copy only"]["median"], steps["train only"]["median"])
        result[name] = {"step_ms": steps, "prefetcher_of_limit": steps["prefetcher"]["median"] / limit}
    return {"cases": result, "copied_bytes_per_s": host[0].nbytes / copy_s}


def _step_ms(batches: Iterable[Any], step: _Step | None, device: torch.device, steps: int) -> float:
    """Milliseconds a step in the steady state: as much is under way at the end as at the beginning."""
    iterator = iter(batches)

    def run(count: int) -> int:
        seen = 0
        for batch in islice(iterator, count):
            if step is not None:
                step.run(batch)
            seen += 1
        return seen

    run(WARM_UP)
    taken = timed(lambda: run(steps), device, from_idle=False)
    assert run(AHEAD) == AHEAD
    finish(device)
    return taken / steps * 1e3


def loader(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """
    What a step waits for ``FastLoader(device=...)``, from a store of raw pictures, in the steady state.

    The step takes twice as long as the loader. With CUDA ``waiting_share`` is read from events on the device.
    """
    store = _raw_store(folder / "raw.h5", sizes.loader_batches * sizes.transfer_batch, sizes.side)
    to_half = [Normalize(MEAN, STD), ToDtype(torch.float16)]
    with FastLoader(store, sizes.transfer_batch, device=device, transforms=to_half, shuffle=True) as batches:
        for _ in batches:
            pass
        load_s = timed(lambda: [None for _ in batches], device) / len(batches)
        step = _Step(device, 2 * load_s)
        runs = [_waited(batches, step, device) for _ in range(sizes.rounds)]
    shares, milliseconds = zip(*runs, strict=True)
    return {
        "load_ms": load_s * 1e3,
        "step_ms": statistics.median(milliseconds),
        "waiting_share": statistics.median(shares),
        "waiting_shares": shares,
    }


def _waited(batches: FastLoader, step: _Step, device: torch.device) -> tuple[float, float]:
    """The share of waiting, and milliseconds a step, of an epoch without its beginning and its end."""
    iterator, timer = iter(batches), StepTimer()
    for batch in islice(iterator, WARM_UP):
        step.run(batch)
    for batch in timer(islice(iterator, len(batches) - WARM_UP - 2)):
        step.run(batch)
    summary = timer.summary()
    for _ in iterator:
        pass
    finish(device)
    steady_s = summary.loading.total_s + summary.training.total_s
    return summary.loading_share, steady_s / max(1, summary.steps) * 1e3


def _raw_store(path: Path, count: int, side: int) -> Path:
    if path.exists():
        return path
    size, rng = side * side * 3, np.random.default_rng(0)
    schema = Schema((Field("image", RAW, "|u1", (side, side, 3)), Field("label", COLUMN, "<i8", ())))
    with create_store(path, schema) as writer:
        for first in range(0, count, 1024):
            numbers = np.arange(first, min(first + 1024, count), dtype=np.int64)
            pixels = rng.integers(0, 256, len(numbers) * size, np.uint8)
            spans = Spans.joined(pixels, np.full(len(numbers), size, np.int64))
            keys = [f"{number:08d}" for number in numbers]
            writer.append(SampleBatch(keys, {"image": spans}, {"label": numbers}))
    return path


def _pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.pin_memory() if device.type == "cuda" else tensor
