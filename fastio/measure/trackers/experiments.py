"""Figures as curves of TensorBoard, and as runs of Weights & Biases and of MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fastio.errors import FastioError
from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures, library

__all__ = [
    "MLflow",
    "TensorBoard",
    "WandB",
]


class _Run(Protocol):
    """What is asked of a library that draws curves. Both calls may raise."""

    def log(self, curves: Mapping[str, float], step: int, time_s: float) -> None:
        """Take the values of one step."""

    def end(self) -> None:
        """End what fastio has opened; what the program has opened stays open."""


class _Curves:
    """A tracker that hands curves named ``fastio/loading_share`` and so on to a run; without one, it writes nothing."""

    def __init__(self, name: str, run: _Run | None) -> None:
        self._name = name
        self._run = run

    def write(self, figures: Figures) -> None:
        """Log the figures of one moment, over the training's steps."""
        if self._run is not None:
            curves = {f"fastio/{path}": value for path, value in figures.curves().items()}
            self._run.log(curves, figures.step, figures.time_s)

    def close(self) -> None:
        """End what was opened here. Calling it twice is harmless."""
        run, self._run = self._run, None
        if run is not None:
            run.end()

    def __str__(self) -> str:
        return self._name


class TensorBoard(_Curves):
    """
    Writes scalars named ``fastio/loading_share`` and so on.

    ``target`` is a folder, or a ``SummaryWriter`` (torch's, tensorboardX's): the figures then appear among that
    writer's own, and it stays open. In a job of several ranks, each writes into a folder of its own below
    ``target``, such as ``rank3``, which TensorBoard shows as runs to compare; a writer is taken as it is.

    A folder needs ``pip install 'fastio[tensorboard]'``. Raises FastioError if it cannot be written.
    """

    def __init__(self, target: str | Path | Any) -> None:
        if isinstance(target, str | Path):
            folder = _folder_of_rank(Path(target))
            super().__init__(str(folder), _EventFiles(folder))
        elif hasattr(target, "add_scalar"):
            super().__init__(f"TensorBoard's {type(target).__name__}", _Scalars(target))
        else:
            raise TypeError(f"TensorBoard({target!r}): expected a folder, or a SummaryWriter with add_scalar")


@dataclass(frozen=True, slots=True)
class _Scalars:
    writer: Any

    def log(self, curves: Mapping[str, float], step: int, time_s: float) -> None:
        for tag, value in curves.items():
            self.writer.add_scalar(tag, value, step, walltime=time_s)

    def end(self) -> None:
        self.writer.flush()


class _EventFiles:
    """One event file, and another one after each error: TensorBoard's writer ends at its first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = _summary_writer(folder)

    def log(self, curves: Mapping[str, float], step: int, time_s: float) -> None:
        writer, self._writer = self._writer or _summary_writer(self._folder), None
        _Scalars(writer).log(curves, step, time_s)
        writer.flush()  # what its thread could not write is raised here
        self._writer = writer

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _folder_of_rank(folder: Path) -> Path:
    rank, ranks = rank_and_world()
    return folder / f"rank{rank}" if ranks > 1 else folder


def _summary_writer(folder: Path) -> Any:
    library("tensorboard", tracker="TensorBoard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return SummaryWriter(str(folder), filename_suffix=".fastio")
    except OSError as exc:
        raise FastioError(f"{folder}: cannot be written ({exc.strerror}); choose another place") from exc


class WandB(_Curves):
    """
    Logs figures named ``fastio/loading_share`` and so on, over ``fastio/step``.

    ``target`` is the run that ``wandb.init`` returned, or the name of a project, in which a run is opened. In a job
    of several ranks, only rank 0 opens one; the others write nothing. A program's own run keeps its steps: figures
    join the row that the program's next ``log`` completes, and the run stays open.

    A project needs ``pip install 'fastio[wandb]'``. WANDB_MODE=offline works without a server, as always.
    """

    def __init__(self, target: str | Any) -> None:
        run: Any = target
        if isinstance(target, str):
            is_first = rank_and_world()[0] == 0
            run = library("wandb", tracker="WandB", extra="wandb").init(project=target) if is_first else None
        elif not hasattr(target, "define_metric"):
            raise TypeError(f"WandB({target!r}): expected a run (call wandb.init first) or the name of a project")
        if run is not None:
            run.define_metric("fastio/step")
            run.define_metric("fastio/*", step_metric="fastio/step")
        super().__init__("Weights & Biases", None if run is None else _Rows(run, is_own=isinstance(target, str)))


@dataclass(frozen=True, slots=True)
class _Rows:
    run: Any
    is_own: bool

    def log(self, curves: Mapping[str, float], step: int, time_s: float) -> None:
        del time_s  # W&B's own clock
        self.run.log({"fastio/step": step, **curves}, commit=self.is_own)

    def end(self) -> None:
        if self.is_own:
            self.run.finish()


class MLflow(_Curves):
    """
    Logs metrics named ``fastio/loading_share`` and so on, those of a step by one request.

    They go to ``run``, else to the run that is active in this thread, else to a new one, which does not become
    active. Tracking URI and experiment are those of MLflow's own settings (MLFLOW_TRACKING_URI, ...). In a job of
    several ranks, only rank 0 opens a run; without one, the others write nothing.

    Needs ``pip install 'fastio[mlflow]'``.
    """

    def __init__(self, run: Any = None) -> None:
        mlflow = library("mlflow", tracker="MLflow", extra="mlflow")
        client = mlflow.MlflowClient()
        run = run or mlflow.active_run()
        run_id = None if run is None else run.info.run_id
        if run is None and rank_and_world()[0] == 0:
            # By MLflow's own rules for names and experiments; then not active any more, so that a later
            # mlflow.start_run() of the program works.
            run_id = mlflow.start_run().info.run_id
            mlflow.end_run()
            client.update_run(run_id, status="RUNNING")
        metrics = None if run_id is None else _Metrics(client, mlflow.entities.Metric, run_id, is_own=run is None)
        super().__init__("MLflow", metrics)


@dataclass(frozen=True, slots=True)
class _Metrics:
    client: Any
    metric: Any  # MLflow's class of one
    run_id: str
    is_own: bool

    def log(self, curves: Mapping[str, float], step: int, time_s: float) -> None:
        time_ms = round(time_s * 1000)
        self.client.log_batch(self.run_id, [self.metric(name, value, time_ms, step) for name, value in curves.items()])

    def end(self) -> None:
        if self.is_own:
            self.client.set_terminated(self.run_id)
