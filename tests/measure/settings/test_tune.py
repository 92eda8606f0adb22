"""tune: whom it lets race, what it measures, whom it chooses, and that it keeps its time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastio.errors import FastioError
from fastio.measure.loop.data import DataOptions
from fastio.measure.settings import points, tune
from fastio.measure.settings.points import GridData, Point
from fastio.measure.settings.tune import candidates, loading_rate
from tests.conftest import encode, pictures


@pytest.fixture
def store(png_stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[GridData]:
    """A store of fifty PNGs, on two CPUs without CUDA."""
    monkeypatch.setattr(points, "available_cpus", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    data = GridData(str(png_stores["lmdb"]), DataOptions(batch_size=10))
    yield data
    data.close()


def rates(monkeypatch: pytest.MonkeyPatch, by_threads: dict[int, float]) -> None:
    """Points load at these rates."""
    monkeypatch.setattr(tune, "loading_rate", lambda data, point, **_: by_threads[point.get("threads", 0)])


def threads(store: GridData, *numbers: int) -> list[Point]:
    """Points with so many threads."""
    return [Point(store.name, (("threads", number),)) for number in numbers]


@pytest.mark.parametrize("best", [1, 2, 4, 8])
def test_the_best_is_found(best: int, store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the fastest point is, it is found, with its code; the others have left."""
    rates(monkeypatch, {number: 1000.0 if number == best else 700.0 for number in (1, 2, 4, 8)})
    done: list[tuple[int, int]] = []
    tuned = tune.tune(store, threads(store, 1, 2, 4, 8), seconds=60, progress=lambda *counts: done.append(counts))

    assert (tuned.point.get("threads", 0), tuned.samples_per_s) == (best, 1000.0)
    assert f"threads={best}" in tuned.code
    assert [best] == [each.point.get("threads", 0) for each in tuned.tried[:1]]
    assert len(tuned.tried) == 4
    assert tuned.is_complete
    assert done == [(number, 15) for number in range(1, len(done) + 1)]


def test_rates_are_comparable_though_rounds_differ(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others slow the machine down to a tenth after the first round, in which the slower point has left."""
    calls: list[int] = []

    def rate(_: GridData, point: Point, **__: float) -> float:
        calls.append(0)
        return (1000.0 if point.get("threads", 0) == 2 else 250.0) / (1 if len(calls) <= 2 else 10)

    monkeypatch.setattr(tune, "loading_rate", rate)
    tuned = tune.tune(store, threads(store, 1, 2), seconds=60, progress=lambda *_: None)
    shown = {each.point.get("threads", 0): each.samples_per_s for each in tuned.tried}

    assert shown[1] == pytest.approx(shown[2] / 4)


def test_the_cheapest_of_equals(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 3 %, fewer CPUs are worth more."""
    rates(monkeypatch, {2: 1000.0, 1: 980.0})

    assert tune.tune(store, threads(store, 2, 1), seconds=60, progress=lambda *_: None).point.get("threads", 0) == 1


def test_the_time_is_kept(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is over, one round has been run, and it is said that this is not enough."""
    rates(monkeypatch, {1: 1000.0, 2: 1000.0})
    tuned = tune.tune(store, candidates(store), seconds=0.0, progress=lambda *_: None)

    assert {1} == {each.rounds for each in tuned.tried}
    assert not tuned.is_complete


def test_a_round_that_would_not_end_in_time_is_not_begun(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that take longer than their slices are counted by what they took."""
    clock = [0.0]

    def slow(*_: object, **__: object) -> float:
        clock[0] += 4.0
        return 1000.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(tune, "loading_rate", slow)
    tuned = tune.tune(store, threads(store, 1, 2), seconds=20.0, progress=lambda *_: None)

    assert tuned.seconds == 16.0


def test_slow_batches_do_not_outlast_the_time(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of points that take a minute each, those are tried that the time is enough for, and it is said."""
    clock = [0.0]

    def slow(*_: object, **__: object) -> float:
        clock[0] += 60.0
        return 1000.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(tune, "loading_rate", slow)
    tuned = tune.tune(store, threads(store, 1, 2, 4, 8), seconds=100.0, progress=lambda *_: None)

    assert (120.0, 2) == (tuned.seconds, len(tuned.tried))
    assert not tuned.is_complete


@pytest.mark.parametrize("number", [1, 2])
def test_one_batch_is_enough_when_time_is_over(number: int, store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point is not given more than the batch that is under way, and one to measure."""
    clock = [0.0]
    taken = 0

    def counted(batch: Any) -> int:
        nonlocal taken
        taken += 1
        return len(batch[0])

    def now() -> float:
        clock[0] += 30.0
        return clock[0]

    monkeypatch.setattr(tune, "sample_count", counted)
    monkeypatch.setattr(tune.time, "perf_counter", now)

    assert loading_rate(store, threads(store, number)[0], seconds=20.0, latest=25.0) == 10 / 60.0
    assert taken == 1


def test_rounds_go_to_and_fro(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second one begins with the last point."""
    seen: list[int] = []

    def rate(_: GridData, point: Point, *, seconds: float, latest: float) -> float:
        seen.append(int(point.get("threads", 0)))
        return 1000.0

    monkeypatch.setattr(tune, "loading_rate", rate)
    tune.tune(store, threads(store, 1, 2), seconds=60, progress=lambda *_: None)

    assert [1, 2, 2, 1, 1, 2] == seen[:6]


@pytest.mark.parametrize(("number", "batches"), [(1, 9), (2, 10)])
def test_a_rate_is_measured(number: int, batches: int, store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of whole turns, over several epochs, by the clock: the first turn is not counted."""
    clock = itertools.count()  # a second later at each look, of which a batch has one and the end another
    monkeypatch.setattr(tune, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    rate = loading_rate(store, threads(store, number)[0], seconds=9)

    assert rate == 10 * batches / (batches + 1)


def test_no_batch_is_no_rate() -> None:
    """A loader that gives nothing would be asked for ever."""
    empty: DataLoader[Any] = DataLoader(TensorDataset(torch.zeros(3)), 4, drop_last=True)
    with pytest.raises(FastioError, match="no batch"):
        list(tune._endless(empty, "x"))


def test_candidates_change_no_sample(store: GridData, tmp_path: Path) -> None:
    """Neither shuffling nor the last batch is decided on; workers stay alive."""
    for number, pixels in enumerate(pictures(5)):
        (tmp_path / f"{number}.png").write_bytes(encode(pixels))
    files = candidates(GridData(str(tmp_path), DataOptions(batch_size=4)))

    assert all("shuffle" not in dict(point.settings) for point in candidates(store))
    assert all("drop_last" not in dict(point.settings) for point in files)
    assert all(point.get("persistent_workers", False) for point in files if point.get("num_workers", 0))


def test_a_batch_systems_cpus_are_the_most(png_stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one CPU from SLURM there is one thread, whatever the machine has."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    data = GridData(str(png_stores["lmdb"]), DataOptions(batch_size=10))

    assert {1} == {point.get("threads", 0) for point in candidates(data)}
    data.close()
