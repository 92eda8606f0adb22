"""Figures: named numbers with units at a step of a training or a moment of a machine; Tracker: what takes them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import FileIO
from typing import Any, Literal, Protocol

from fastio.errors import FastioError

__all__ = [
    "Figure",
    "Figures",
    "Tracker",
    "append_whole",
    "library",
]


# A gauge is a value now, a rate how fast something grows, a total how far it has grown since the start.
Kind = Literal["gauge", "rate", "total"]
Unit = Literal["", "seconds", "bytes", "ratio", "celsius", "per_second", "bytes_per_second"]

# How fastio names units everywhere else: in JSON, and in the attributes of summaries.
_ENDINGS: dict[Unit, str] = {
    "": "",
    "seconds": "_s",
    "bytes": "_bytes",
    "ratio": "_share",
    "celsius": "_c",
    "per_second": "_per_s",
    "bytes_per_second": "_bytes_per_s",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """
    One number. ``name`` leaves out the unit, which is that of ``value``; ``meaning`` is one sentence for people.

    ``labels`` tell figures of one name apart: ``(("gpu", "0"),)``.
    """

    name: str
    value: float
    unit: Unit
    meaning: str
    kind: Kind = "gauge"
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """
        The figure's name with labels and unit, for trackers that know neither.

        >>> Figure("gpu_memory", 3e9, "bytes", "Memory in use.", labels=(("gpu", "1"), ("slice", "0"))).path
        'gpu1/slice0/gpu_memory_bytes'
        """
        return "".join(f"{label}{value}/" for label, value in self.labels) + self.name + _ENDINGS[self.unit]


@dataclass(frozen=True, slots=True)
class Figures:
    """
    All figures of one moment: ``step`` counts up (steps of a training, samples of a machine), ``time_s`` is in
    seconds since 1970, and ``labels`` hold for all figures: ``(("rank", "0"),)``.
    """

    step: int
    time_s: float
    figures: tuple[Figure, ...]
    labels: tuple[tuple[str, str], ...] = ()

    def curves(self) -> dict[str, float]:
        """
        Return path and value of what is drawn over time: gauges and rates, without totals, which only grow.
        """
        return {figure.path: figure.value for figure in self.figures if figure.kind != "total"}


class Tracker(Protocol):
    """
    Takes figures to one destination. ``write`` and ``close`` are called by one thread, and may raise: the training
    goes on, and the log says once which figures are missing.
    """

    def write(self, figures: Figures) -> None:
        """Take the figures of one moment."""
        ...

    def close(self) -> None:
        """Write what is left and release what this tracker opened itself. Calling it twice is harmless."""


# Imports the library of a tracker when one is made, and says how to install it if it is missing.


def library(module: str, *, tracker: str, extra: str) -> Any:
    """Return the module. Raises FastioError that names the extra of fastio which installs its package."""
    package = module.partition(".")[0]
    if find_spec(package) is None:
        raise FastioError(f"{tracker} needs {package}, which is not installed: pip install 'fastio[{extra}]'")
    return import_module(module)


# Appends to a file a whole piece or nothing, so that a full disk leaves no half of one.


def append_whole(file: FileIO, piece: bytes) -> None:
    """Write the piece at the file's end. If that fails, the file is as it was; raises OSError."""
    size = os.fstat(file.fileno()).st_size
    left = piece
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        file.truncate(size)
        raise
