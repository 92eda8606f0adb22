"""What StepTimer writes to trackers: the figures of each window of steps, and nothing that would slow them."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fastio import FastLoader, StepTimer
from fastio.errors import FastioError
from fastio.measure.loop import step_timer
from fastio.measure.trackers import Figures, MLflow, OpenMetrics, TensorBoard, WandB, training
from fastio.measure.trackers.training import TrackerThread
from tests.measure.trackers.numbers import Kept, TokenLoader, figures


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The timer's clock, moved by hand."""
    time = [100.0]
    monkeypatch.setattr(step_timer, "perf_counter", lambda: time[0])
    return time


def loader(now: list[float], waits: list[float]) -> Iterator[list[int]]:
    """Batches of two, each after its wait."""
    for wait in waits:
        now[0] += wait
        yield [1, 2]


def values(record: Figures) -> dict[str, float]:
    """All figures by path; totals by their path with a mark."""
    return {figure.path + "#" * (figure.kind == "total"): figure.value for figure in record.figures}


def test_the_figures_of_each_window(now: list[float]) -> None:
    """Median, 95th percentile, share and rates of these steps; totals of all; the rest with close()."""
    kept, waits, trainings = Kept(), [9.0, 1.0, 2.0, 4.0, 3.0], [10.0, 20.0, 30.0, 40.0, 50.0]
    timer = StepTimer(trackers=[kept], every=3)
    for _, seconds in zip(timer(loader(now, [*waits, 0.0])), trainings, strict=False):
        now[0] += seconds
    timer.close()
    timer.close()
    first, rest = map(values, kept.records)

    assert [3, 5] == [record.step for record in kept.records]
    assert (("rank", "0"),) == kept.records[0].labels
    assert first == {
        "loading_median_s": 1.5,
        "loading_p95_s": pytest.approx(np.percentile([1.0, 2.0], 95)),
        "loading_max_s": 2.0,
        "training_median_s": 20.0,
        "training_p95_s": pytest.approx(np.percentile(trainings[:3], 95)),
        "loading_share": 3 / 63,
        "samples_per_s": 6 / 72,
        "steps_per_s": 3 / 72,
        "steps#": 3,
        "samples#": 6,
        "epochs#": 1,
        "loading_s#": 3.0,
        "first_batches_s#": 9.0,
        "training_s#": 60.0,
    }
    assert (3.5, 10.0, 10, 150.0) == tuple(
        rest[name] for name in ("loading_median_s", "loading_s#", "samples#", "training_s#")
    )


def test_totals_are_those_of_the_summary(now: list[float]) -> None:
    """Whatever the windows, their sums are what summary() says."""
    waits, kept = np.random.default_rng(0).random(20).tolist(), Kept()
    timer = StepTimer(trackers=[kept], every=7)
    for _ in range(2):
        for _ in timer(loader(now, waits)):
            now[0] += 0.5
    timer.close()
    summary, last = timer.summary(), values(kept.records[-1])

    assert (summary.steps, summary.samples, summary.epochs) == (last["steps#"], last["samples#"], last["epochs#"])
    assert summary.loading.total_s == pytest.approx(last["loading_s#"])
    assert summary.first_batches_s == pytest.approx(last["first_batches_s#"])
    assert summary.training.total_s == pytest.approx(last["training_s#"])


def test_a_resumed_training_goes_on_counting(now: list[float]) -> None:
    """Its curves begin where those of the first part end."""
    kept = Kept()
    timer = StepTimer(trackers=[kept], every=2, steps_before=1000)
    for _ in timer(loader(now, [1.0] * 4)):
        now[0] += 1.0
    timer.close()

    assert [1002, 1004] == [record.step for record in kept.records]


def test_the_counters_of_a_fastloader(png_store: Path) -> None:
    """Threads and memory of the loader in use; the timer does not keep it alive."""
    kept = Kept()
    timer = StepTimer(trackers=[kept], every=2)
    with FastLoader(png_store, 16, threads=1) as png_loader:
        for _ in timer(png_loader):
            pass
        timer.close()
        figures = values(kept.records[0])

        assert 1 == figures["loader_threads"]
        assert png_loader.stats.batch_bytes == figures["loader_batch_bytes"]
        assert figures["loader_buffers_bytes"] >= figures["loader_batch_bytes"]


def test_the_tokens_of_all_loaders(now: list[float]) -> None:
    """Tokens add up over loaders, whose counters begin at 0; padding is that of the window."""
    kept = Kept()
    timer = StepTimer(trackers=[kept], every=3)
    for _ in range(2):
        for _ in timer(TokenLoader()):
            now[0] += 1.0
    timer.close()
    first, second = map(values, kept.records)

    assert (288, 576) == (first["tokens#"], second["tokens#"])
    assert (0.25, 0.25) == (first["padding_share"], second["padding_share"])
    assert (96.0, 96.0) == (first["tokens_per_s"], second["tokens_per_s"])
    assert 2 == first["loader_threads"]


class LaggingEvent:
    """A CUDA event of a device that runs two steps behind, and must not be waited for."""

    recorded = 0

    def record(self) -> None:
        LaggingEvent.recorded += 1
        self.number = LaggingEvent.recorded

    def query(self) -> bool:
        return self.number + 4 <= LaggingEvent.recorded

    def synchronize(self) -> None:
        raise AssertionError("the device was waited for")

    def elapsed_time(self, end: LaggingEvent) -> float:
        return 1000.0 * (end.number - self.number)


def test_nothing_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CUDA, figures are of steps whose events have passed, with the samples of those steps."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: LaggingEvent())
    kept = Kept()
    timer = StepTimer(trackers=[kept], every=2)
    for _ in timer([[0] * size for size in (1, 2, 3, 4, 5, 6)]):
        pass
    report = timer._report
    assert report is not None
    report.close()

    assert [2, 4] == [record.step for record in kept.records]
    assert [3, 10] == [values(record)["samples#"] for record in kept.records]


def test_what_is_left_is_written_when_the_process_ends(tmp_path: Path) -> None:
    """A script need not close anything."""
    script = (
        "from fastio import StepTimer\nfrom fastio.measure.trackers import CSV\n"
        "for _ in StepTimer(trackers=[CSV('steps.csv')], every=2)([[1]] * 5): pass"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)

    assert ["2", "4", "5"] == [line.split(",")[1] for line in (tmp_path / "steps.csv").read_text().splitlines()[1:]]


@pytest.mark.parametrize("wrong", [{"every": 0}, {"steps_before": -1}])
def test_impossible_windows_are_refused(wrong: dict[str, int]) -> None:
    """Every step at most, and no step before the first."""
    with pytest.raises(ValueError, match="every="):
        StepTimer(trackers=[Kept()], **wrong)  # type: ignore[arg-type]


# TrackerThread: a tracker that fails or hangs is told once and never stops the training.


class Recorder:
    """Keeps the steps that it gets; refuses those in ``bad``."""

    def __init__(self, bad: tuple[int, ...] = ()) -> None:
        self.steps: list[int] = []
        self.threads: set[str] = set()
        self.closed = 0
        self._bad = bad

    def write(self, figures: Figures) -> None:
        self.threads.add(threading.current_thread().name)
        if figures.step in self._bad:
            raise OSError(28, "No space left on device")
        self.steps.append(figures.step)

    def close(self) -> None:
        self.closed += 1

    def __str__(self) -> str:
        return "runs/x"


def test_figures_arrive_in_order_from_another_thread() -> None:
    """All that was put before close() is written, then the tracker is closed, once."""
    tracker = Recorder()
    thread = TrackerThread(tracker)
    for step in range(50):
        thread.put(figures(step))
    thread.close()
    thread.close()
    thread.put(figures(99))

    assert list(range(50)) == tracker.steps
    assert {"fastio tracker"} == tracker.threads
    assert 1 == tracker.closed


def test_a_failure_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """One line when it happens, one at the end; what can be written still is."""
    tracker = Recorder(bad=(1, 2, 4))
    with caplog.at_level(logging.WARNING):
        thread = TrackerThread(tracker)
        for step in range(6):
            thread.put(figures(step))
        thread.close()

    assert [0, 3, 5] == tracker.steps
    assert [
        "runs/x failed: No space left on device; figures are missing there, training goes on",
        "runs/x: 3 of 6 writes did not arrive",
    ] == caplog.messages


def test_a_tracker_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """put() never blocks, close() not for ever, and the lines say what is missing."""
    monkeypatch.setattr(training, "_CLOSE_S", 0.05)
    monkeypatch.setattr(training, "_WAITING", 2)
    release, is_hung, lines = threading.Event(), threading.Event(), list[str]()

    class Hung(Recorder):
        def write(self, figures: Figures) -> None:
            is_hung.set()
            release.wait()

    thread = TrackerThread(Hung(), warn=lines.append)
    thread.put(figures(0))
    is_hung.wait()
    for step in range(1, 6):
        thread.put(figures(step))
    thread.close()
    release.set()

    assert [
        "runs/x is too slow: 2 writes wait for it; figures are missing there, training goes on",
        "runs/x has not finished after 0 s and is left behind",
    ] == lines[:2]
    assert "runs/x: 6 of 6 writes did not arrive" == lines[2]


@pytest.mark.parametrize(
    ("tracker", "package", "extra"),
    [
        (OpenMetrics, "prometheus_client", "metrics"),
        (lambda: TensorBoard("runs/x"), "tensorboard", "tensorboard"),
        (lambda: WandB("project"), "wandb", "wandb"),
        (MLflow, "mlflow", "mlflow"),
    ],
)
def test_a_missing_package_names_its_extra(
    tracker: type, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what to install."""
    monkeypatch.setattr("fastio.measure.trackers.figures.find_spec", lambda _: None)
    with pytest.raises(FastioError, match=rf"needs {package}, which is not installed: pip install 'fastio\[{extra}\]'"):
        tracker()
