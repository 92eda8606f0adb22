"""What rules return: rows of evidence, steps to take, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Advice", "Caution", "Evidence", "Part"]

# The slow part of loading.
Part = Literal[
    "slow_disk",
    "slow_wait",
    "slow_decode",
    "slow_transform",
    "slow_collate",
    "slow_handover",
    "too_few_workers",
    "too_few_cpus",
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure: its name, value and unit; ``share`` is its part of the step or of the batch, 0 to 1."""

    group: str
    name: str
    value: float
    unit: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """
    A step to take: why, what it would gain, and the line or command to paste.

    ``gain`` is the future rate over the current one, computed from measured figures, None if they do not tell. With
    ``is_bound`` it is an upper bound; otherwise it is what the figures predict.
    """

    title: str
    reason: str
    code: str
    gain: float | None = None
    is_bound: bool = True


@dataclass(frozen=True, slots=True)
class Caution:
    """Something near a limit: what it is, why that matters and what to do, and in ``source`` the limit."""

    title: str
    reason: str
    source: str
