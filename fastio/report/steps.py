"""Parts that pages about steps share: rates as bars, the timeline, the times of a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastio.report.page import Plot, Series, Table
from fastio.types.units import counted, per_second

__all__ = ["losses_plot", "ms", "rate", "timeline_plot", "times_table"]

_TITLES = ("", "mean", "p50", "p90", "p99", "longest")
_PARTS = ("mean_s", "p50_s", "p90_s", "p99_s", "max_s")


def ms(seconds: float) -> str:
    """
    Format seconds as milliseconds.

    >>> ms(0.01234)
    '12.34 ms'
    """
    return f"{seconds * 1e3:,.2f} ms"


def rate(samples_per_s: float) -> str:
    """Format a rate in whole samples per second."""
    return f"{per_second(samples_per_s)} samples/s"


def timeline_plot(timeline: Mapping[str, Any]) -> Plot | None:
    """Return loading and training of each step, stacked; None without steps."""
    loading, training = timeline["loading_s"], timeline["training_s"]
    if not loading:
        return None
    first = timeline["first_step"]
    longest = max(range(len(loading)), key=loading.__getitem__)
    waits = f"longest wait {ms(loading[longest])} before step {first + longest:,}"
    if timeline["is_first"][longest]:
        waits += ", the first one of an epoch"
    return Plot(
        "Time of each step: waiting for the batch, and on top of it, training",
        f"{counted(len(loading), 'step')}: {sum(loading):.2f} s of loading, {sum(training):.2f} s of training; "
        f"{waits}.",
        "step",
        list(range(first, first + len(loading))),
        "ms",
        (
            Series("loading", [seconds * 1e3 for seconds in loading], "loading"),
            Series("training", [seconds * 1e3 for seconds in training], "training"),
        ),
        look="stack",
    )


def times_table(summaries: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return loading and training of each summary: mean and percentiles."""
    rows = [
        (f"{name}, {part}".strip(", "), *(f"{summary[part][statistic] * 1e3:,.2f}" for statistic in _PARTS))
        for name, summary in summaries
        for part in ("loading", "training")
    ]
    return Table(_TITLES, rows, range(1, 6), "Milliseconds per step, without first batches of epochs")


def losses_plot(losses: Sequence[float]) -> Plot:
    """Return a plot of the loss of each step."""
    return Plot(
        "Loss of each step",
        f"{counted(len(losses), 'step')}: from {losses[0]:.4f} to {losses[-1]:.4f}.",
        "step",
        list(range(len(losses))),
        "",
        (Series("loss", losses, "both"),),
    )
