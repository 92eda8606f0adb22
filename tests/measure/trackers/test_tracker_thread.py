"""TrackerThread: a tracker that fails or hangs is told once and never stops the training."""

from __future__ import annotations

import logging
import threading

import pytest

from fastio.errors import FastioError
from fastio.measure.trackers import Figures, MLflow, OpenMetrics, TensorBoard, WandB, tracker_thread
from fastio.measure.trackers.tracker_thread import TrackerThread
from tests.measure.trackers.numbers import figures


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
    monkeypatch.setattr(tracker_thread, "_CLOSE_S", 0.05)
    monkeypatch.setattr(tracker_thread, "_WAITING", 2)
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
    monkeypatch.setattr("fastio.measure.trackers.package.find_spec", lambda _: None)
    with pytest.raises(FastioError, match=rf"needs {package}, which is not installed: pip install 'fastio\[{extra}\]'"):
        tracker()
