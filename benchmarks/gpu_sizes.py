"""How much the benchmark of a GPU measures, and its clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

__all__ = ["BUFFERS", "Case", "Sizes", "finish", "in_rounds", "timed"]

BUFFERS = 8  # rotated: together far more than the card's cache

Case = Callable[[], float]


@dataclass(frozen=True)
class Sizes:
    """``rounds`` of everything; each case of training takes ``seconds`` a round, behind its warm-up."""

    rounds: int = 5
    seconds: float = 4.0
    repeats: int = 20  # of all buffers, in one measurement on the card
    transfer_batch: int = 256
    side: int = 224
    transfer_steps: int = 200
    loader_batches: int = 48  # of raw pictures in one epoch
    pngs: int = 50_000
    photos: int = 500  # different ones
    entries: int = 16_000  # of the store that is made of them
    batch: int = 128  # of the small CNN
    photo_batch: int = 256
    crop: int = 224
    short_side: int = 256
    workers: tuple[int, ...] = (1, 3)


def timed(work: Callable[[], object], device: torch.device, *, from_idle: bool = True) -> float:
    """
    Seconds that the current stream takes for ``work``.

    ``from_idle=False``: from where the stream stands now, with what is under way beside it, to the end of ``work``.
    """
    if device.type != "cuda":
        begun = perf_counter()
        work()
        return perf_counter() - begun
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if from_idle:
        torch.cuda.synchronize(device)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def in_rounds(cases: dict[str, Case], rounds: int) -> dict[str, dict[str, float]]:
    """Median, least and most of each case, all cases in turn, after one round that is not counted."""
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


def finish(device: torch.device) -> None:
    """Wait for all that was given to the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
