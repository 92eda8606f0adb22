"""TensorBoard: figures as scalars, in an event file or by a SummaryWriter that the program has."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from fastio.errors import FastioError
from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures, append_whole, library

__all__ = ["TensorBoard"]

_NUMBERS = count()  # tells files of one process apart


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
            self._writer = _EventFile(folder)
        elif not hasattr(target, "add_scalar"):
            raise TypeError(f"TensorBoard({target!r}): expected a folder, or a SummaryWriter with add_scalar")

    def write(self, figures: Figures) -> None:
        """Write one scalar per figure."""
        scalars = {f"fastio/{path}": value for path, value in figures.curves().items()}
        if self._is_own:
            self._writer.add(scalars, figures.step, figures.time_s)
        else:
            for tag, value in scalars.items():
                self._writer.add_scalar(tag, value, figures.step)

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


class _EventFile:
    """
    An event file, written by TensorBoard's own record writer, at once.

    TensorBoard's writer of whole files has a thread that ends at the first error: a disk that was full for a moment
    would end all curves.
    """

    def __init__(self, folder: Path) -> None:
        self._events = library("tensorboard.compat.proto.event_pb2", tracker="TensorBoard", extra="tensorboard")
        self._summaries = import_module("tensorboard.compat.proto.summary_pb2")
        self._records = import_module("tensorboard.summary.writer.record_writer")
        name = (
            f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}.fastio"
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / name).open("ab", buffering=0)
            self._append(self._events.Event(wall_time=time.time(), file_version="brain.Event:2"))
        except OSError as exc:
            raise FastioError(f"{folder}: cannot be written ({exc.strerror}); choose another place") from exc

    def add(self, scalars: Mapping[str, float], step: int, time_s: float) -> None:
        """Write all scalars of a step as one record."""
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._append(self._events.Event(wall_time=time_s, step=step, summary=self._summaries.Summary(value=values)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, event: Any) -> None:
        record = io.BytesIO()
        self._records.RecordWriter(record).write(event.SerializeToString())
        append_whole(self._file, record.getvalue())
