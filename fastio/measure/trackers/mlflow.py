"""MLflow: figures as metrics of the program's active run, or of one of their own."""

from __future__ import annotations

from typing import Any

from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures
from fastio.measure.trackers.package import library

__all__ = ["MLflow"]


class MLflow:
    """
    Logs metrics named ``fastio/loading_share`` and so on.

    They go to ``run``, else to the run that is active in this thread, else to a new one, which does not become
    active. Tracking URI and experiment are those of MLflow's own settings (MLFLOW_TRACKING_URI, ...). In a job of
    several ranks, only rank 0 opens a run; without one, the others write nothing.

    Needs ``pip install 'fastio[mlflow]'``.
    """

    def __init__(self, run: Any = None) -> None:
        mlflow = library("mlflow", tracker="MLflow", extra="mlflow")
        self._client = mlflow.MlflowClient()
        self._metric = mlflow.entities.Metric
        run = run or mlflow.active_run()
        self._is_own = run is None
        self._run_id: str | None = None
        if run is not None:
            self._run_id = run.info.run_id
        elif rank_and_world()[0] == 0:
            # By MLflow's own rules for names and experiments; then not active any more, so that a later
            # mlflow.start_run() of the program works.
            self._run_id = mlflow.start_run().info.run_id
            mlflow.end_run()
            self._client.update_run(self._run_id, status="RUNNING")

    def write(self, figures: Figures) -> None:
        """Log all figures with one request."""
        if self._run_id is not None:
            time_ms = round(figures.time_s * 1000)
            curves = figures.curves().items()
            metrics = [self._metric(f"fastio/{path}", value, time_ms, figures.step) for path, value in curves]
            self._client.log_batch(self._run_id, metrics)

    def close(self) -> None:
        """End a run that was opened here. Calling it twice is harmless."""
        if self._is_own and self._run_id is not None:
            self._client.set_terminated(self._run_id)
        self._run_id = None

    def __str__(self) -> str:
        return "MLflow"
