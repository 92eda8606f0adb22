"""MLflow: metrics in a store of files and in SQLite, read back by its own client."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.measure.trackers import MLflow
from tests.measure.trackers.numbers import CURVES, figures

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # of mlflow's own


@pytest.fixture(autouse=True, params=["file:{}/runs", "sqlite:///{}/runs.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of its own; mlflow-skinny has no SQLite."""
    if request.param.startswith("sqlite"):
        pytest.importorskip("alembic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", request.param.format(tmp_path))


def metrics(run_id: str) -> dict[str, list[tuple[int, int, float]]]:
    """Step, time and value of each metric."""
    client = mlflow.MlflowClient()
    names = client.get_run(run_id).data.metrics
    return {
        name: [(metric.step, metric.timestamp, metric.value) for metric in client.get_metric_history(run_id, name)]
        for name in names
    }


def test_a_run_of_its_own() -> None:
    """It runs until close(), and does not become the program's active run."""
    tracker = MLflow()
    tracker.write(figures(50))
    tracker.write(figures(100, 0.5))
    assert mlflow.active_run() is None
    (run,) = mlflow.search_runs(output_format="list")
    assert "RUNNING" == run.info.status
    tracker.close()
    tracker.close()
    (run,) = mlflow.search_runs(output_format="list")
    logged = metrics(run.info.run_id)

    assert "FINISHED" == run.info.status
    assert {f"fastio/{path}" for path in CURVES} == set(logged)
    assert [(50, 1_700_000_050_500, 0.25), (100, 1_700_000_100_500, 0.5)] == logged["fastio/loading_median_s"]


def test_the_active_run_of_the_program() -> None:
    """Metrics lie beside the program's own, and the run stays open."""
    with mlflow.start_run() as run:
        tracker = MLflow()
        tracker.write(figures(50))
        tracker.close()
        mlflow.log_metric("loss", 0.125)

        assert "RUNNING" == mlflow.MlflowClient().get_run(run.info.run_id).info.status
    logged = metrics(run.info.run_id)
    assert {"loss", "fastio/loading_median_s"} < set(logged)
    assert 1 == len(mlflow.search_runs(output_format="list"))


def test_only_the_first_rank_opens_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others write nothing."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    tracker = MLflow()
    tracker.write(figures(1))
    tracker.close()

    monkeypatch.delenv("RANK")
    MLflow().close()
    assert 1 == len(mlflow.search_runs(output_format="list"))
