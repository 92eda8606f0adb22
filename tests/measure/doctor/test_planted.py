"""Each planted fault gets its name: live where no GPU is needed, from traces of the recorded form where one is."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fastio import FastLoader
from fastio.measure.doctor.diagnosis import diagnose
from fastio.measure.doctor.facts import Facts
from fastio.measure.doctor.gather import trace_facts
from fastio.measure.doctor.session import ObservationPlan
from fastio.measure.doctor.watch import Watcher
from fastio.measure.trace.trace import read_trace
from tests.measure.doctor.planted import (
    FAULT_S,
    Burn,
    Samples,
    Training,
    diagnosed,
    examine,
    slow_collate,
    time_steps_without_others,
)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

FAULTS: dict[str, dict[str, Any]] = {
    "slow_wait": {"dataset": Samples(wait_s=FAULT_S)},
    "slow_decode": {"dataset": Samples(burn_s=FAULT_S)},
    "slow_transform": {"dataset": Samples(transform=Burn(FAULT_S))},
    "slow_collate": {"dataset": Samples(), "collate_fn": slow_collate},
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", FAULTS)
def test_slow_loading(part: str, workers: int) -> None:
    """Waiting, decoding, a transform and a collate that compute: in the loop, and in a worker."""
    said = diagnosed(num_workers=workers, **FAULTS[part])

    assert ("io_bound", part) == (said.pattern, said.part)
    if part != "slow_decode":  # of files that nobody knows here
        assert said.steps[0].gain is not None
        assert said.steps[0].gain > 2


def test_slow_loading_in_spawned_workers() -> None:
    """A worker that is spawned is watched as one that is forked."""
    said = diagnosed(Samples(burn_s=FAULT_S), num_workers=1, multiprocessing_context="spawn")

    assert ("io_bound", "slow_decode") == (said.pattern, said.part)


def test_big_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that takes far longer than its batch is the limit, also where threads wait for a busy machine."""
    time_steps_without_others(monkeypatch)
    said = diagnosed(Samples(), step_s=0.4)

    assert said.pattern == "compute_bound"
    assert "fastio pack" not in "".join(step.code for step in said.steps)


def test_slow_reads_of_any_loader() -> None:
    """Of somebody's own generator, too, it is seen that nobody computes while the loop waits."""

    class Batches:
        def __iter__(self) -> Any:
            dataset = Samples(burn_s=FAULT_S)
            yield from (dataset[index][None] for index in range(len(dataset)))

    def training(watcher: Watcher) -> None:
        Training(watcher.watched(Batches()))(watcher)

    facts = examine(training)
    assert facts.loader is not None
    said = diagnose(facts)

    assert ("other", "Batches") == (facts.loader.kind, facts.loader.name)
    assert ("io_bound", "slow_decode") == (said.pattern, said.part)


def test_waits_of_any_loader() -> None:
    """A generator of somebody's own that sleeps is no slow disk: its line is named."""

    class Batches:
        def __iter__(self) -> Any:
            dataset = Samples(wait_s=FAULT_S)
            yield from (dataset[index][None] for index in range(len(dataset)))

    def training(watcher: Watcher) -> None:
        Training(watcher.watched(Batches()))(watcher)

    said = diagnose(examine(training))

    assert ("io_bound", "slow_wait") == (said.pattern, said.part)
    assert "planted.py" in said.summary
    assert "time.sleep" in said.summary


Event = tuple[str, str, float, float]  # category, name, start, duration


def traced(tmp_path: Path, step: list[Event], *, step_us: float = 1000, steps: int = 3) -> Facts:
    """The facts of a trace in which the same step happens several times."""
    marks = [number * step_us for number in range(steps + 1)]
    events = [("user_annotation", f"ProfilerStep#{n}", a, b - a) for n, (a, b) in enumerate(pairwise(marks))]
    events += [(kind, name, start + mark, length) for mark in marks[:-1] for kind, name, start, length in step]
    said = {
        "traceEvents": [
            {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": length, "pid": 1, "tid": kind}
            for kind, name, start, length in events
        ]
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(said))
    return Facts(trace=trace_facts(read_trace(path)))


def kernels(count: int, *, first_us: float, every_us: float, length_us: float) -> list[Event]:
    """Launches one after the other, each followed by its kernel."""
    found: list[Event] = []
    for start in (first_us + number * every_us for number in range(count)):
        found += [
            ("cpu_op", "aten::add", start, every_us * 0.9),
            ("cuda_runtime", "cudaLaunchKernel", start + every_us * 0.5, every_us * 0.3),
            ("kernel", "vectorized_elementwise_kernel", start + every_us * 0.8, length_us),
        ]
    return found


def test_item_in_every_step(tmp_path: Path) -> None:
    """The host launches, then stands in cudaStreamSynchronize while the device works, then launches again."""
    step = [
        ("cpu_op", "aten::linear", 0.0, 450.0),
        ("cuda_runtime", "cudaLaunchKernel", 400.0, 40.0),
        ("kernel", "sgemm", 440.0, 500.0),
        ("cpu_op", "aten::item", 450.0, 500.0),
        ("cuda_runtime", "cudaStreamSynchronize", 455.0, 490.0),
    ]
    said = diagnose(traced(tmp_path, step))

    assert said.pattern == "sync_bound"
    assert ".item()" in said.steps[0].title


def test_tiny_kernels(tmp_path: Path) -> None:
    """A hundred kernels of 2 us, launched every 10 us."""
    facts = traced(tmp_path, kernels(100, first_us=0, every_us=10, length_us=2))
    assert facts.trace is not None
    said = diagnose(facts)

    assert said.pattern == "launch_bound"
    assert facts.trace.kernels_per_step == 100
    assert facts.trace.kernel_s == pytest.approx(2e-6)


def test_big_model_on_a_device(tmp_path: Path) -> None:
    """Kernels that follow one another without a gap."""
    said = diagnose(traced(tmp_path, kernels(10, first_us=0, every_us=100, length_us=99)))

    assert said.pattern == "compute_bound"


def test_loading_in_a_trace(tmp_path: Path) -> None:
    """A wait that DataLoader marks."""
    step = [("user_annotation", "enumerate(DataLoader)#x", 0.0, 600.0), ("kernel", "sgemm", 650.0, 300.0)]

    assert diagnose(traced(tmp_path, step)).pattern == "io_bound"


def test_our_own_loader(png_stores: dict[str, Path]) -> None:
    """A FastLoader's settings are facts; what it decodes here is nothing beside the step."""
    with FastLoader(png_stores["lmdb"], 4, threads=1) as loader:

        def training(watcher: Watcher) -> None:
            del watcher
            model = nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters())
            while True:
                for images, _ in loader:
                    model(images[:, :1, 0, 0].float()).sum().backward()
                    optimizer.step()

        facts = examine(training)

    assert facts.loader is not None
    assert ("FastLoader", "FastDataset", 1) == (facts.loader.kind, facts.loader.dataset, facts.loader.threads)
    assert diagnose(facts).pattern is not None


@pytest.mark.parametrize("options", [{}, {"threads": 0}, {"threads": 1}])
def test_who_chose_the_threads(png_stores: dict[str, Path], options: dict[str, int]) -> None:
    """A loader that was left to choose its threads is told from one that got a number."""

    def training(watcher: Watcher) -> None:
        del watcher
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters())
        with FastLoader(png_stores["lmdb"], 4, **options) as loader:
            for images, _ in loader:
                model(images[:, :1, 0, 0].float()).sum().backward()
                optimizer.step()

    facts = examine(training)

    assert facts.loader is not None
    assert facts.loader.is_tuned == (options != {"threads": 1})


class OnDevice:
    """A training on a GPU with one batch that is there already, and a planted way of stepping."""

    def __init__(self, *, size: int, layers: int, is_item_read: bool) -> None:
        self.size = size
        self.layers = layers
        self.is_item_read = is_item_read

    def __call__(self, watcher: Watcher) -> None:
        """What the doctor runs."""
        layers = [nn.Linear(self.size, self.size) for _ in range(self.layers)]
        model = nn.Sequential(*layers).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 1e-9, foreach=False)
        batch = torch.ones(self.size, self.size, device="cuda")
        for inputs in watcher.watched([batch] * 100_000):
            loss = model(inputs).mean()
            loss.backward()
            optimizer.step()
            if self.is_item_read:
                for parameter in model.parameters():
                    parameter.grad.sum().item()  # type: ignore[union-attr] # it has been filled
            optimizer.zero_grad()


@needs_cuda
@pytest.mark.parametrize(
    ("bound", "training"),
    [
        ("launch_bound", OnDevice(size=8, layers=60, is_item_read=False)),
        ("compute_bound", OnDevice(size=8192, layers=4, is_item_read=False)),
    ],
)
def test_live_on_a_device(bound: str, training: OnDevice) -> None:
    """Tiny kernels and a big model."""
    facts = examine(training, ObservationPlan(seconds=0.5, profiled=3))

    assert bound == diagnose(facts).pattern


@needs_cuda
def test_reading_items_live() -> None:
    """What .item() costs is seen in the trace, whichever of host and device is the slower one here."""
    facts = examine(OnDevice(size=2048, layers=8, is_item_read=True), ObservationPlan(seconds=0.5, profiled=3))

    assert facts.trace is not None
    assert facts.trace.sync is not None
    assert facts.trace.sync > 0.1
    assert diagnose(facts).pattern in ("sync_bound", "compute_bound", "launch_bound")
