"""What Python code did on the CPUs while a training ran: functions, threads, and who held the GIL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CpuProfile", "FunctionTime", "GilShares", "Tool"]

Tool = Literal["cprofile", "py-spy"]


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """
    One Python function; ``self_s`` is without what it called. ``line`` is where it begins, ``calls`` None where nobody
    counted (py-spy looks at moments, not at calls).
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
    Who held the interpreter's lock, as parts of the time from 0 to 1, whose sum is 1.

    ``loader``: code of a loader, of ours or of torch's, and what it called; ``training``: everything else; ``free``:
    nobody. A loader that holds the GIL keeps the loop from launching.
    """

    loader: float
    training: float
    free: float


@dataclass(frozen=True, slots=True)
class CpuProfile:
    """
    What ``tool`` saw in ``seconds``, in which ``steps`` steps ended; ``path`` is the file it wrote. Who held the GIL
    was looked at afterwards, for as long.

    ``functions`` are sorted by their own time, longest first. cProfile sees the training's own thread only; py-spy all
    threads that were running, whose times therefore may sum to more than ``seconds``.
    """

    tool: Tool
    path: str
    steps: int
    seconds: float
    functions: tuple[FunctionTime, ...]
    gil: GilShares | None
