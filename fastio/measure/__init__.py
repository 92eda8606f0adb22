"""Measures what a machine and a training loop can do. Each name is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.measure.loop.mock import MockLoader, MockTrainer
    from fastio.measure.loop.verdict import StepShares, verdict

__all__ = ["MockLoader", "MockTrainer", "StepShares", "verdict"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "MockLoader": "fastio.measure.loop.mock",
        "MockTrainer": "fastio.measure.loop.mock",
        "StepShares": "fastio.measure.loop.verdict",
        "verdict": "fastio.measure.loop.verdict",
    },
)
