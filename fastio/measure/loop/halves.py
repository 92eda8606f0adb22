"""Measures a training in halves: loading alone, training alone, and the loop of both, with a verdict."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from fastio.errors import FastioError
from fastio.measure.loop.batch import limited
from fastio.measure.loop.data import Data, Step
from fastio.measure.loop.mock import MockLoader, MockResult, MockTrainer
from fastio.measure.loop.step_timer import StepSummary, StepTimer, Timeline
from fastio.measure.loop.verdict import StepShares, Verdict, verdict

__all__ = ["Halves", "measure_halves", "measure_training"]


@dataclass(frozen=True, slots=True)
class Halves:
    """
    ``io`` is loading alone, ``training`` is training alone on one batch, ``loop`` is the real loop, ``timeline`` its
    steps.
    """

    io: MockResult
    training: StepSummary
    loop: StepSummary
    timeline: Timeline
    verdict: Verdict


def measure_halves(data: Data, step: Step, *, seconds: float) -> Halves:
    """
    Measure each half and the whole for about ``seconds`` each, and name the limit.

    The verdict uses steady rates, without the waits for first batches. Raises FastioError if the loader is empty, or
    cannot be iterated a second time.
    """
    io = MockTrainer().run(data.loader, epochs=None, seconds=seconds)
    if io.batches == 0:
        raise FastioError(f"{data.name}: the loader is empty: nothing to measure")
    training = measure_training(data, step, seconds=seconds)
    timer = StepTimer()
    _run(timer, data, step, seconds)
    loop = timer.summary()
    shares = StepShares(loading=loop.loading_share)
    limit = verdict(io.steady_samples_per_s, training.samples_per_s, shares=shares)
    return Halves(io, training, loop, timer.timeline(), limit)


def measure_training(data: Data, step: Step, *, seconds: float) -> StepSummary:
    """Train on the loader's first batch for about ``seconds``, after one step that does not count."""
    mock = MockLoader(_first_batch(data), data.device)
    step(mock.batch)  # the first step allocates memory and chooses kernels
    _synchronize()
    timer = StepTimer()
    for batch in timer(limited(mock, ends=time.perf_counter() + seconds)):
        step(batch)
    return timer.summary()


def _first_batch(data: Data) -> Any:
    for batch in data.loader:
        return batch
    raise FastioError(
        f"{data.name}: the loader gave no batch when it was iterated again: return one that starts over each time"
    )


def _run(timer: StepTimer, data: Data, step: Step, seconds: float) -> None:
    """Run the real loop, epoch after epoch, until the time has passed or an epoch is empty."""
    ends = time.perf_counter() + seconds
    steps_before = -1
    while time.perf_counter() < ends and timer.steps > steps_before:
        steps_before = timer.steps
        for batch in timer(limited(data.loader, ends=ends)):
            step(batch)


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
