"""TensorBoard: event files as TensorBoard's own reader has them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from fastio.errors import FastioError
from fastio.measure.trackers import TensorBoard
from tests.measure.trackers.numbers import CURVES, figures

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of protobuf and tensorboard


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and value of each tag."""
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), size_guidance={TENSORS: 0})
    events.Reload()
    tensors = {
        tag: [(event.step, float(make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }
    return tensors | {
        tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def test_scalars_are_read_back(tmp_path: Path) -> None:
    """One curve per gauge or rate, over the training's steps."""
    tracker = TensorBoard(tmp_path / "runs")
    tracker.write(figures(50))
    tracker.write(figures(100, 0.5))
    tracker.close()
    tracker.close()
    curves = scalars(tmp_path / "runs")

    assert {f"fastio/{path}" for path in CURVES} == set(curves)
    assert [(50, 0.25), (100, 0.5)] == curves["fastio/loading_median_s"]


def test_a_summary_writer_of_the_program(tmp_path: Path) -> None:
    """Figures lie in its file, beside its own; it stays open."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        tracker = TensorBoard(writer)
        tracker.write(figures(50))
        tracker.close()
        writer.add_scalar("loss", 0.125, 50)
    curves = scalars(tmp_path)

    assert 1 == len([file.name for file in tmp_path.iterdir()])
    assert ([(50, 0.25)], [(50, 0.125)]) == (curves["fastio/loading_median_s"], curves["loss"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread ends
def test_a_full_disk_costs_points_and_not_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written is raised at once; curves go on in another file once there is room."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tracker = TensorBoard(tmp_path)
    tracker.write(figures(1))
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "write", full)
        for step in (2, 3):
            with pytest.raises((OSError, FastioError), match="No space left"):
                tracker.write(figures(step))
    tracker.write(figures(4))
    tracker.close()

    assert [(1, 0.25), (4, 0.25)] == scalars(tmp_path)["fastio/loading_median_s"]


def test_each_rank_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard shows folders as runs with a colour each."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    tracker = TensorBoard(tmp_path)
    tracker.write(figures(1))
    tracker.close()

    assert [(1, 0.25)] == scalars(tmp_path / "rank1")["fastio/loading_median_s"]


def test_what_cannot_be_written_to(tmp_path: Path) -> None:
    """A file instead of a folder, and an object that is no writer."""
    (tmp_path / "file").touch()
    with pytest.raises(FastioError, match="file: cannot be written"):
        TensorBoard(tmp_path / "file")
    writer: Any = object()
    with pytest.raises(TypeError, match="add_scalar"):
        TensorBoard(writer)
