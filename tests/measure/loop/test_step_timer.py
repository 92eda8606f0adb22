"""StepTimer: what a loop waits for, what it trains, by the host's clock and by a device's events."""

from __future__ import annotations

import gc
import json
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastio import FastLoader, StepTimer
from fastio.measure.loop import step_timer
from fastio.measure.loop.step_timer import Timeline


class FakeTime:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The timer's clock, moved by hand."""
    fake = FakeTime()
    monkeypatch.setattr(step_timer, "perf_counter", fake)
    return fake


def slow(clock: FakeTime, waits: list[float]) -> Iterator[list[int]]:
    """Batches of two, each after its wait."""
    for wait in waits:
        clock.now += wait
        yield [1, 2]


def test_a_loop_is_split_in_two(clock: FakeTime) -> None:
    """Waits and steps are told apart; the first wait of an epoch stands alone."""
    timer = StepTimer(window=2)
    for _ in timer(slow(clock, [5.0, 1.0, 2.0, 3.0])):
        clock.now += 10.0
    seen = timer.summary()

    assert (seen.epochs, seen.steps, seen.samples, seen.clock) == (1, 4, 8, "host")
    assert seen.first_batches_s == 5.0
    assert (seen.loading.total_s, seen.loading.mean_s, seen.loading.moving_s) == (6.0, 2.0, 2.5)
    assert (seen.loading.p50_s, seen.loading.max_s) == (2.0, 3.0)
    assert (seen.training.total_s, seen.training.p99_s) == (40.0, 10.0)
    assert seen.seconds == 51.0
    assert seen.samples_per_s == 8 / 51
    assert seen.loading_share == 6 / 46
    assert seen.loading_per_training == 6 / 40
    assert sum(seen.stalls.values()) == 3


def test_percentiles_are_those_of_the_latest_steps(clock: FakeTime) -> None:
    """Memory is bounded: the mean and the maximum know all steps, percentiles the last ones."""
    waits = [1.0, 50.0, *([2.0] * 10)]
    timer = StepTimer(window=5, history=10)
    for _ in timer(slow(clock, waits)):
        clock.now += 1.0
    loading = timer.summary().loading

    assert (loading.p99_s, loading.max_s, loading.mean_s) == (2.0, 50.0, sum(waits[1:]) / 11)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_percentiles_are_numpys(clock: FakeTime, count: int) -> None:
    """Fast or not: a percentile is the one that numpy computes of the list."""
    waits = np.random.default_rng(count).random(count + 1).tolist()
    timer = StepTimer()
    for _ in timer(slow(clock, waits)):
        clock.now += 0.5

    assert timer.summary().loading.p90_s == pytest.approx(np.percentile(waits[1:], 90))


def test_a_loop_by_hand(clock: FakeTime) -> None:
    """What passes between trained() and begin() belongs to no step."""
    timer = StepTimer()
    for _ in range(2):
        timer.begin()
        for wait in (4.0, 1.0):
            clock.now += wait
            timer.loaded(16)
            clock.now += 2.0
            timer.trained()
        clock.now += 1000.0
    seen = timer.summary()

    assert (seen.epochs, seen.steps, seen.samples) == (2, 4, 64)
    assert (seen.first_batches_s, seen.loading.total_s, seen.training.total_s) == (8.0, 2.0, 8.0)


def test_calls_out_of_order_are_refused() -> None:
    """Times of a step that was never begun would be nonsense."""
    timer = StepTimer()
    with pytest.raises(RuntimeError, match=r"begin\(\)"):
        timer.loaded()
    timer.begin()
    with pytest.raises(RuntimeError, match=r"loaded\(\)"):
        timer.trained()


@pytest.mark.parametrize("is_left", [True, False])
def test_a_loop_inside_a_loop_is_refused(*, is_left: bool) -> None:
    """One timer cannot tell the steps of two loops from one another; two timers can."""
    outer, inner = StepTimer(), StepTimer()

    def loops(second: StepTimer) -> None:
        for _ in outer([1, 2]):
            for _ in second([3, 4]):
                if is_left:
                    break

    loops(inner)
    assert (2, 0 if is_left else 4) == (outer.summary().steps, inner.summary().steps)
    with pytest.raises(RuntimeError, match="give each loop its own"):
        loops(outer)


def test_a_step_left_early_is_not_counted(clock: FakeTime) -> None:
    """After break or an exception the timer goes on with the next epoch."""
    timer = StepTimer()
    for number, _ in enumerate(timer(slow(clock, [1.0, 1.0, 1.0]))):
        if number == 1:
            break
    failing = (1 / 0 for _ in timer(slow(clock, [1.0])))
    with pytest.raises(ZeroDivisionError):
        next(failing)
    for _ in timer(slow(clock, [1.0])):
        clock.now += 3.0

    assert (timer.summary().epochs, timer.summary().steps) == (3, 2)
    assert timer.summary().training.total_s == 3.0


def test_a_summary_is_printed_for_people(clock: FakeTime) -> None:
    """Counts and rate, a row for waiting and one for training, and the waits that they leave out."""
    timer = StepTimer()
    for _ in timer(slow(clock, [5.0, 0.001, 0.002, 0.003])):
        clock.now += 0.01

    assert [
        "4 steps in 1 epoch, 8 samples: 1.59 samples/s",
        "                      share       mean     median  99% below    longest",
        "waiting for data      13.0%     2.0 ms     2.0 ms     3.0 ms     3.0 ms",
        "training              87.0%    10.0 ms    10.0 ms    10.0 ms    10.0 ms",
        "first batches of epochs: 5.0 s in all, not in these shares",
    ] == str(timer.summary()).splitlines()
    assert "no steps yet" == str(StepTimer().summary())


def test_nothing_is_zero() -> None:
    """Without a step there are no times, and no division by them."""
    seen = StepTimer().summary()

    assert (seen.steps, seen.samples_per_s, seen.loading_share, seen.loading_per_training) == (0, 0.0, 0.0, None)
    assert seen.loading.p99_s == 0.0


def test_any_loader_and_its_length(png_store: Path) -> None:
    """A FastLoader, a DataLoader and a generator; the length is the loader's own."""
    timer = StepTimer()
    data = DataLoader(TensorDataset(torch.zeros(5, 2), torch.zeros(5)), batch_size=2)
    with FastLoader(png_store, 16) as loader:
        assert len(timer(loader)) == len(loader)
        images = sum(len(images) for images, _ in timer(loader))
    rows = sum(len(x) for x, _ in timer(data))

    assert (images, rows) == (50, 5)
    assert timer.summary().samples == 55
    with pytest.raises(TypeError, match="len"):
        len(timer(iter([])))


def test_an_iterable_is_timed_epoch_after_epoch() -> None:
    """What the timer hands out can be iterated again."""
    timer = StepTimer()
    timed = timer([[1], [2]])

    assert [[1], [2]] * 2 == list(timed) + list(timed)
    assert timer.summary().epochs == 2


def test_a_batch_is_not_kept() -> None:
    """While the loop works the timer holds no reference: the memory goes back to the loader when the loop lets go."""

    class Batch(list[int]):
        """A list that can be watched."""

    timer = StepTimer()
    for batch in timer(Batch([1]) for _ in range(2)):
        watched = weakref.ref(batch)
        del batch
        gc.collect()
        assert watched() is None


def test_json_has_the_summary_and_the_steps(clock: FakeTime, tmp_path: Path) -> None:
    """Everything for a report: the figures and the latest steps."""
    timer = StepTimer()
    for _ in timer(slow(clock, [5.0, 1.0])):
        clock.now += 2.0
    timer.write_json(tmp_path / "steps.json")
    said = json.loads((tmp_path / "steps.json").read_text())

    assert said["timeline"] == {
        "first_step": 0,
        "is_first": [True, False],
        "loading_s": [5.0, 1.0],
        "training_s": [2.0, 2.0],
    }
    assert said["format"] == "fastio.steps/1"
    assert said["summary"]["loading"]["total_s"] == 1.0
    assert said["summary"]["loading_share"] == timer.summary().loading_share


def test_a_timeline_is_bounded(clock: FakeTime) -> None:
    """It has the last steps, says which is the first of them, and marks where an epoch began."""
    timer = StepTimer(window=1, history=3)
    assert timer.timeline() == Timeline(0, [], [], [])
    for _ in range(2):
        for _ in timer(slow(clock, [5.0, 1.0])):
            clock.now += 2.0

    assert timer.timeline() == Timeline(1, [False, True, False], [1.0, 5.0, 1.0], [2.0, 2.0, 2.0])


class FakeEvent:
    """A CUDA event: recorded behind work that ends at ``device_ms``; the device has got to ``reached_ms``."""

    device_ms = 0.0
    reached_ms = 0.0

    def record(self) -> None:
        self.at_ms = FakeEvent.device_ms

    def query(self) -> bool:
        return self.at_ms <= FakeEvent.reached_ms

    def synchronize(self) -> None:
        FakeEvent.reached_ms = max(FakeEvent.reached_ms, self.at_ms)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert end.at_ms <= FakeEvent.reached_ms, "read before the device was there"
        return end.at_ms - self.at_ms


def test_with_cuda_the_device_tells_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps come from events, without waiting for the device until the summary is asked for."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: FakeEvent())
    timer = StepTimer()
    for batch in timer([[1], [2], [3]]):
        FakeEvent.device_ms += 30.0 * batch[0]
        assert FakeEvent.reached_ms == 0.0
    seen = timer.summary()

    assert (seen.clock, seen.steps) == ("events", 3)
    assert seen.training.total_s == pytest.approx(0.18)
    assert seen.loading.total_s == 0.0


def test_synchronised_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then each step waits for the device."""
    calls = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append(1))
    timer = StepTimer(synchronize=True)
    for _ in timer([[1], [2]]):
        time.perf_counter()

    assert (timer.summary().clock, len(calls)) == ("synchronized", 2)


@pytest.mark.parametrize(("window", "history"), [(0, 10), (11, 10)])
def test_a_window_lies_in_the_history(window: int, history: int) -> None:
    """A moving average over more than is kept would be another one."""
    with pytest.raises(ValueError, match="window"):
        StepTimer(window=window, history=history)
