"""Trains for a number of steps and times them: losses, rates, and the cost of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from fastio.errors import FastioError
from fastio.measure.loop.data import Data
from fastio.measure.loop.step_summary import StepSummary
from fastio.measure.loop.step_timer import StepTimer, Timeline
from fastio.trainer.distributed import mean_over_ranks
from fastio.trainer.feed import classes_of
from fastio.trainer.step import TrainStep

__all__ = ["TrainResult", "accuracy", "train"]

_WARM_UP = 3  # steps in which torch allocates, chooses kernels and compiles
_LOOK_EVERY = 50  # steps between reads of the loss: each waits for the device


@dataclass(frozen=True, slots=True)
class TrainResult:
    """
    The result of a training.

    ``losses`` are those of all steps, averaged over ranks; ``summary`` and ``timeline`` leave out the first
    ``warm_up`` steps. If epochs end in between, the wait for the next one's first batch counts as loading.
    ``peak_bytes`` is the most memory that torch had allocated on a CUDA device, None elsewhere.
    """

    losses: list[float]
    warm_up: int
    summary: StepSummary
    timeline: Timeline
    peak_bytes: int | None

    @property
    def first_loss(self) -> float:
        """Mean of the first tenth of the steps."""
        return math.fsum(self.losses[: self._tenth]) / self._tenth

    @property
    def last_loss(self) -> float:
        """Mean of the last tenth of the steps."""
        return math.fsum(self.losses[-self._tenth :]) / self._tenth

    @property
    def _tenth(self) -> int:
        return -(-len(self.losses) // 10)


def train(data: Data, step: TrainStep, steps: int, *, on_step: Callable[[int, int], None] | None = None) -> TrainResult:
    """
    Train for ``steps`` steps, over as many epochs as that takes; ``on_step`` gets the steps done and their total.

    Raises FastioError if an epoch is empty, a loss is not finite, or a CUDA device runs out of memory.
    """
    warm_up = min(_WARM_UP, steps // 2)
    log = _Losses(data.name)
    timer = StepTimer()
    device = step.options.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with closing(_endless(data)) as batches:
        try:
            for batch in islice(batches, warm_up):
                log.add(step(batch))
            _synchronize(device)
            for batch in timer(islice(batches, steps - warm_up)):
                log.add(step(batch))
                if on_step is not None:
                    on_step(warm_up + timer.steps + 1, steps)
        except torch.cuda.OutOfMemoryError as exc:
            raise FastioError(f"{device}: out of memory: try a smaller --batch-size, or --amp bf16") from exc
    losses = mean_over_ranks(log.finished())
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return TrainResult(losses, warm_up, timer.summary(), timer.timeline(), peak)


def accuracy(step: TrainStep, batches: Iterable[Any]) -> float:
    """Return the share, 0 to 1, of all pictures in ``batches`` that the network classifies correctly."""
    network, options = step.network, step.options
    classes_of(step.workload)
    network.eval()
    right = torch.zeros((), dtype=torch.int64, device=options.device)
    count = 0
    with torch.no_grad(), options.autocast():
        for batch in batches:
            images, labels = step.prepared(batch)
            right += (network(images).argmax(1) == labels).sum()
            count += len(labels)
    network.train()
    return int(right) / count if count else math.nan


def _endless(data: Data) -> Generator[Any]:
    """
    Yield one epoch after the other, each with its number. No batch is kept: its memory belongs to the loader's ring.
    """
    epoch = 0
    while True:
        if hasattr(data.loader, "set_epoch"):
            data.loader.set_epoch(epoch)
        is_empty = True
        for held in map(_in_a_list, data.loader):
            is_empty = False
            yield held.pop()
        if is_empty:
            again = " when it was iterated again: return one that starts over each time" if epoch else ""
            raise FastioError(f"{data.name}: the loader gave no batch{again}")
        epoch += 1


def _in_a_list(batch: Any) -> list[Any]:
    return [batch]


class _Losses:
    """Losses, read from the device now and then. Raises FastioError for one that is not finite."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._read: list[float] = []
        self._waiting: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor) -> None:
        self._waiting.append(loss)
        if len(self._waiting) == _LOOK_EVERY:
            self._look()

    def finished(self) -> list[float]:
        """Return all of them."""
        self._look()
        return self._read

    def _look(self) -> None:
        if not self._waiting:
            return
        losses = torch.stack(self._waiting).tolist()
        self._waiting.clear()
        for step, loss in enumerate(losses, len(self._read)):
            if not math.isfinite(loss):
                raise FastioError(
                    f"{self._name}: the loss of step {step} is {loss}: check the data (`fastio verify`), or train in "
                    "another precision (--amp bf16 or off)"
                )
        self._read += losses


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
