"""Figures: named numbers with units at a step of a training or a moment of a machine; Tracker: what takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Figure", "Figures", "Kind", "Tracker", "Unit"]

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
