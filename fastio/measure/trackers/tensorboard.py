"""TensorBoard: figures as scalars, in an event file or by a SummaryWriter that the program has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastio.errors import FastioError
from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures
from fastio.measure.trackers.package import library

__all__ = ["TensorBoard"]


class TensorBoard:
    """
    Writes scalars named ``fastio/loading_share`` and so on.

    ``target`` is a folder, or a ``SummaryWriter`` (torch's, tensorboardX's): the figures then appear among that
    writer's own, and it stays open. In a job of several ranks, each writes into a folder of its own below
    ``target``, such as ``rank3``, which TensorBoard shows as runs to compare; a writer is taken as it is.

    A folder needs ``pip install 'fastio[tensorboard]'``. Raises FastioError if it cannot be written.
    """

    def __init__(self, target: str | Path | Any) -> None:
        self._is_own = isinstance(target, str | Path)
        self._writer: Any = target
        self._name = f"TensorBoard's {type(target).__name__}"
        if isinstance(target, str | Path):
            folder = _folder_of_rank(Path(target))
            self._name = str(folder)
            self._writer = _opened(folder)
        elif not hasattr(target, "add_scalar"):
            raise TypeError(f"TensorBoard({target!r}): expected a folder, or a SummaryWriter with add_scalar")

    def write(self, figures: Figures) -> None:
        """Write one scalar per figure."""
        for path, value in figures.curves().items():
            self._writer.add_scalar(f"fastio/{path}", value, figures.step)
        if self._is_own:
            self._writer.flush()

    def close(self) -> None:
        """Close the event file; a writer that was handed in is only flushed. Calling it twice is harmless."""
        if self._writer is None:
            return
        if self._is_own:
            self._writer.close()
        else:
            self._writer.flush()
        self._writer = None

    def __str__(self) -> str:
        return self._name


def _folder_of_rank(folder: Path) -> Path:
    rank, ranks = rank_and_world()
    return folder / f"rank{rank}" if ranks > 1 else folder


def _opened(folder: Path) -> Any:
    """Return TensorBoard's own writer, which does not need torch."""
    summary = library("tensorboard.summary", tracker="TensorBoard", extra="tensorboard")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return summary.Writer(str(folder))
    except OSError as exc:
        raise FastioError(f"{folder}: cannot be written ({exc.strerror}); choose another place") from exc
