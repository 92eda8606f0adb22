"""Weights & Biases: figures in a run of the program, or in one of their own."""

from __future__ import annotations

from typing import Any

from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures
from fastio.measure.trackers.package import library

__all__ = ["WandB"]


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
