"""Trainings with a planted fault each, small and quick; the faults are far larger than what else happens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from fastio.measure.doctor.diagnosis import Diagnosis, diagnose
from fastio.measure.doctor.facts import Facts, MachineFacts
from fastio.measure.doctor.gather import facts_of
from fastio.measure.doctor.probe import RunQueue
from fastio.measure.doctor.session import ObservationPlan, observe
from fastio.measure.doctor.watch import Watcher
from fastio.measure.loop import step_timer

PLAN = ObservationPlan(seconds=0.3, profiled=0)
FAULT_S = 0.02


def burn(seconds: float) -> None:
    """Work on a CPU, however many others do."""
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


def time_steps_without_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the steps of this thread's training be timed by a clock that stands still while others have the CPU."""
    queue = RunQueue()

    def clock() -> float:
        while True:
            waited, now = queue.waited_s, time.perf_counter()
            if queue.waited_s == waited:  # nobody came in between
                return now - waited

    monkeypatch.setattr(step_timer, "perf_counter", clock)


class Samples(Dataset[torch.Tensor]):
    """Samples that wait, or compute, before they are there."""

    def __init__(self, *, wait_s: float = 0.0, burn_s: float = 0.0, transform: Any = None) -> None:
        self.wait_s = wait_s
        self.burn_s = burn_s
        self.transform = transform

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.wait_s:
            time.sleep(self.wait_s)  # of 0 s it would give the CPU away
        burn(self.burn_s)
        sample = torch.full((4,), float(index))
        return sample if self.transform is None else self.transform(sample)


class Burn:
    """A transform."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        """Compute, and change nothing."""
        burn(self.seconds)
        return sample


def slow_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    """Computes for far longer than the samples took."""
    burn(4 * FAULT_S)
    return torch.stack(samples)


class Training:
    """The loop of a script: a linear model, an optimizer, and a step that takes ``step_s``."""

    def __init__(self, loader: Any, *, step_s: float = 0.0, steps: int = 100_000) -> None:
        self.loader = loader
        self.step_s = step_s
        self.steps = steps
        self.seen: list[torch.Tensor] = []

    def __call__(self, watcher: Watcher) -> None:
        """What the doctor runs."""
        del watcher
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-6)
        for batch in self.loader:
            if len(self.seen) == self.steps:
                return
            time.sleep(self.step_s)
            model(batch if isinstance(batch, torch.Tensor) else torch.ones(1, 4)).sum().backward()
            optimizer.step()
            self.seen.append(batch)


def examine(training: Any, plan: ObservationPlan = PLAN) -> Facts:
    """The facts of a training, on a machine of one CPU: no more workers are of use then."""
    facts = observe(training, plan, facts_of)
    machine = facts.machine or MachineFacts()
    return replace(facts, machine=replace(machine, cpus=1, cpu_percent=50.0))


def diagnosed(dataset: Dataset[torch.Tensor], *, step_s: float = 0.0, **settings: Any) -> Diagnosis:
    """What the doctor says of a DataLoader of these samples, two a batch; it sees three steps or more."""
    loader: DataLoader[torch.Tensor] = DataLoader(dataset, batch_size=2, **settings)
    plan = replace(PLAN, seconds=max(PLAN.seconds, 3 * step_s))
    return diagnose(examine(Training(loader, step_s=step_s), plan))
