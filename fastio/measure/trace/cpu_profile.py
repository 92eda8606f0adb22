"""What Python code did on the CPUs during a training: functions, threads, and who held the GIL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CpuProfile", "FunctionTime", "GilShares", "Tool"]

Tool = Literal["cprofile", "py-spy"]


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """
    One Python function: ``self_s`` is its time without callees, ``line`` its first line.

    ``calls`` is None if nobody counted (py-spy samples, it does not count calls).
    """

    name: str
    file: str
    line: int
    calls: int | None
    self_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class GilShares:
    """
    Who held the interpreter's lock, as shares of the time from 0 to 1 that add up to 1.

    ``loader``: code of a loader, fastio's or torch's, and what it called; ``training``: everything else; ``free``:
    nobody. A loader that holds the GIL keeps the loop from launching work.
    """

    loader: float
    training: float
    free: float


@dataclass(frozen=True, slots=True)
class CpuProfile:
    """
    What ``tool`` measured in ``seconds`` and ``steps`` steps; ``path`` is the file it wrote.

    Who held the GIL was sampled afterwards, for as long. ``functions`` are sorted by their own time, longest first.
    cProfile sees only the training's own thread; py-spy sees all running threads, whose times may add up to more than
    ``seconds``.
    """

    tool: Tool
    path: str
    steps: int
    seconds: float
    functions: tuple[FunctionTime, ...]
    gil: GilShares | None
