"""Figures as runs of Weights & Biases and of MLflow."""

from __future__ import annotations

from typing import Any

from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures, library

__all__ = [
    "MLflow",
    "WandB",
]


class WandB:
    """
    Logs figures named ``fastio/loading_share`` and so on, over ``fastio/step``.

    ``target`` is the run that ``wandb.init`` returned, or the name of a project, in which a run is opened. In a job
    of several ranks, only rank 0 opens one; the others write nothing. A program's own run keeps its steps: figures
    join the row that the program's next ``log`` completes, and the run stays open.

    A project needs ``pip install 'fastio[wandb]'``. WANDB_MODE=offline works without a server, as always.
    """

    def __init__(self, target: str | Any) -> None:
        self._is_own = isinstance(target, str)
        self._run: Any = target
        if isinstance(target, str):
            self._run = None
            if rank_and_world()[0] == 0:
                wandb = library("wandb", tracker="WandB", extra="wandb")
                self._run = wandb.init(project=target)
        elif not hasattr(target, "define_metric"):
            raise TypeError(f"WandB({target!r}): expected a run (call wandb.init first) or the name of a project")
        if self._run is not None:
            self._run.define_metric("fastio/step")
            self._run.define_metric("fastio/*", step_metric="fastio/step")

    def write(self, figures: Figures) -> None:
        """Log the figures as one row, or as part of the program's next row."""
        if self._run is not None:
            curves = {f"fastio/{path}": value for path, value in figures.curves().items()}
            self._run.log({"fastio/step": figures.step, **curves}, commit=self._is_own)

    def close(self) -> None:
        """Finish a run that was opened here. Calling it twice is harmless."""
        if self._is_own and self._run is not None:
            self._run.finish()
        self._run = None

    def __str__(self) -> str:
        return "Weights & Biases"


# MLflow: figures as metrics of the program's active run, or of one of their own.


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
