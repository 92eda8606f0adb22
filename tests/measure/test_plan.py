"""What is planned is what loaders read: ranges and bytes of all ranks are equal, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from fastio import FastDataset, FastLoader, _native
from fastio.measure import plan as planning
from fastio.measure.plan import EpochPlan, PlanOptions, TrainingPlan
from fastio.samplers.batches import Batches, OrderSampler
from fastio.samplers.order import Shuffle, Uneven
from fastio.types.schema import RAW, Field
from fastio.types.spans import Spans
from tests.conftest import write_store
from tests.dataset.many_fields import write_fields

COUNT, BYTES = 1200, 8192
MEMORY = {"lanes": 4_500_000, "held": 1 << 30}  # bytes; the samples have 9.8 MB
CLASSES = np.arange(COUNT) // 120
BATCH = 13


@pytest.fixture(scope="module", params=["lmdb", "tar", "h5", "fields.tar", "fields.lmdb"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes one after the other, alone or with captions of any length."""
    target = tmp_path_factory.mktemp("planned") / f"a.{request.param}"
    rows = np.random.default_rng(0).integers(0, 256, (COUNT, BYTES), np.uint8)
    if "fields" not in request.param:
        values = [row.tobytes() for row in rows]
        return write_store(target, values, CLASSES, field=Field("x", RAW, "|u1", (BYTES,)))
    types = {"x": f"uint8[{BYTES}]", "caption": "text", "label": "label"}
    samples = [
        {"x": row, "caption": "long " * (number % 70), "label": int(CLASSES[number])} for number, row in enumerate(rows)
    ]
    return write_fields(target, samples, types)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Spans]:
    """All that the files of stores are asked to read ahead, from now on."""
    spans: list[Spans] = []
    real = _native.read_ahead

    def read_ahead(wanted: Spans, *rest: Any) -> Any:
        spans.append(wanted)
        return real(wanted, *rest)

    monkeypatch.setattr(_native, "read_ahead", read_ahead)
    return spans


def counted(spans: list[Spans]) -> tuple[int, int]:
    """Contiguous reads and their bytes, one call after the other."""
    reads = nbytes = 0
    for wanted in spans:
        count, total = np.empty(1, np.int64), np.empty(1, np.int64)
        _native.count_stretches(wanted, np.array([0, len(wanted)]), count, total)
        reads, nbytes = reads + int(count[0]), nbytes + int(total[0])
    return reads, nbytes


def planned(dataset: FastDataset, epochs: int = 2, **options: Any) -> list[EpochPlan]:
    """The plans of epochs."""
    return list(TrainingPlan(dataset, PlanOptions(**{"batch_size": BATCH, **options})).epochs(epochs))


@pytest.mark.parametrize(
    ("shuffle", "memory"),
    [(True, "lanes"), (True, "held"), ("full", "lanes"), (False, "lanes")],
    ids=["lanes", "held", "full", "sequential"],
)
@pytest.mark.parametrize(("nodes", "ranks"), [(1, 1), (2, 2), (1, 4)])
def test_planned_reads_are_those_of_loaders(
    path: Path,
    asked: list[Spans],
    monkeypatch: pytest.MonkeyPatch,
    shuffle: Shuffle,
    memory: str,
    nodes: int,
    ranks: int,
) -> None:
    """Every rank's loader asks its files for as many ranges, and bytes, as are planned for its node."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", str(MEMORY[memory]))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    world = nodes * ranks
    reads = np.zeros((2, nodes, 2), np.int64)
    dataset = FastDataset(path)
    for rank in range(world):
        with FastLoader(dataset, BATCH, shuffle=shuffle, seed=3, rank=rank, world_size=world, threads=1) as loader:
            for epoch in range(2):
                asked.clear()
                steps = sum(1 for _ in loader)
                reads[epoch, rank // ranks] += counted(asked)
            if shuffle is True:
                assert loader.stats.shuffle is not None
                assert loader.stats.shuffle.kind == {"lanes": "lanes", "held": "full"}[memory]

    plans = planned(dataset, nodes=nodes, ranks=ranks, shuffle=shuffle, seed=3)
    assert reads.tolist() == [[[node.reads, node.asked_bytes] for node in plan.nodes] for plan in plans]
    assert {steps} == {plan.steps for plan in plans}
    assert all(plan.samples == plan.repeated - plan.dropped + COUNT for plan in plans)


def test_fields_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    """With one of two fields, only its bytes count, if the other one is too large to be read along."""
    samples = [{"x": np.zeros(BYTES, np.uint8), "caption": "c" * 10 * BYTES} for _ in range(40)]
    store = write_fields(tmp_path / "a.h5", samples, {"x": f"uint8[{BYTES}]", "caption": "text"})
    nbytes = [planned(FastDataset(store, fields=fields), shuffle=False)[0].nodes for fields in (None, "x")]

    assert nbytes[1][0].asked_bytes == 40 * BYTES
    assert nbytes[0][0].asked_bytes > 400 * BYTES


def numbers(folder: Path) -> FastDataset:
    """A thousand samples of 400 bytes."""
    values = [np.full(100, number, np.int32).tobytes() for number in range(1000)]
    return FastDataset(write_store(folder / "n.h5", values, np.arange(1000), field=Field("x", RAW, "<i4", (100,))))


def test_all_counts_are_those_of_any_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs planned side by side are the same, in order."""
    store = numbers(tmp_path)
    expected = [planned(store, 1)[0], *planned(store, 5)[1:]]
    monkeypatch.setattr(planning, "available_cpus", lambda: 1)

    assert expected == planned(store, 5)
    assert [0, 1, 2, 3, 4] == [plan.epoch for plan in expected]


def test_closing_the_plans_stops_what_is_planned_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that a thread has begun ends at its next rank, so that Ctrl-C need not wait for all of them."""
    ranks, is_shut, real = {0: 0, 1: 0}, Event(), OrderSampler.plans

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            is_shut.set()
            super().shutdown(wait, cancel_futures=cancel_futures)

    def plans(self: OrderSampler, epoch: int, *rest: Any) -> Iterator[Batches]:
        for batches in real(self, epoch, *rest):
            ranks[epoch] += 1
            if epoch == 1:
                is_shut.wait(60)
            yield batches

    monkeypatch.setattr(planning, "available_cpus", lambda: 2)
    monkeypatch.setattr(planning, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(OrderSampler, "plans", plans)
    epochs = TrainingPlan(numbers(tmp_path), PlanOptions(ranks=8, batch_size=BATCH)).epochs(2)

    assert next(epochs).epoch == 0
    epochs.close()
    assert ranks[0] == 8
    assert ranks[1] <= 1


@pytest.mark.parametrize(("uneven", "repeated", "dropped"), [("pad", 0, 0), ("drop", 0, 0), ("repeat", 40, 0)])
def test_padding_is_that_of_the_division(tmp_path: Path, uneven: Uneven, repeated: int, dropped: int) -> None:
    """1000 samples in steps of 4 * 13: what is left is 12 samples, 3 a rank, or a batch of 13."""
    (plan,) = planned(numbers(tmp_path), 1, nodes=2, ranks=2, uneven=uneven)

    assert (repeated, dropped, 20) == (plan.repeated, plan.dropped, plan.steps)
    assert plan.samples == 1000 + repeated
