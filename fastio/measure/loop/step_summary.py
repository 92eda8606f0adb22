"""StepSummary: what a StepTimer has measured, and how ``print`` shows it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from fastio.types.units import counted, per_second, quantity

__all__ = ["Clock", "StepSummary", "Times"]

Clock = Literal["host", "events", "synchronized"]

_TITLES = ("", "share", "mean", "median", "99% below", "longest")


@dataclass(frozen=True, slots=True)
class Times:
    """
    Times of one part of a step, in seconds.

    ``total_s``, ``mean_s`` and ``max_s`` cover all steps, ``moving_s`` is the mean of the last ``window`` steps, and
    the percentiles cover the last ``history`` steps. All are 0.0 before the first step.
    """

    total_s: float
    mean_s: float
    moving_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class StepSummary:
    """
    What a StepTimer has measured.

    ``loading`` leaves out the wait for the first batch of each epoch, when nothing could have been prepared yet;
    ``first_batches_s`` is the sum of those waits. ``samples_per_s`` includes them, as the length of an epoch does.
    ``stalls`` maps an upper bound in seconds to the number of waits below it (host clock, see LoaderStats). ``print``
    shows the figures that matter most as a small table.
    """

    clock: Clock
    epochs: int
    steps: int
    samples: int
    loading: Times
    training: Times
    first_batches_s: float
    stalls: dict[float, int]

    @property
    def seconds(self) -> float:
        """Seconds of loading and training in all counted steps."""
        return self.first_batches_s + self.loading.total_s + self.training.total_s

    @property
    def samples_per_s(self) -> float:
        """Samples trained on per second of loading and training."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def steady_samples_per_s(self) -> float:
        """The same without the waits for first batches: the rate of a long epoch."""
        steady = self.loading.total_s + self.training.total_s
        return self.samples / steady if steady > 0 else 0.0

    @property
    def loading_share(self) -> float:
        """Share of the time, 0 to 1, that the loop waited for data, without the first batch of each epoch."""
        steady = self.loading.total_s + self.training.total_s
        return self.loading.total_s / steady if steady > 0 else 0.0

    @property
    def loading_per_training(self) -> float | None:
        """The ratio loading_time / training_time, which should be far below 1; None without training."""
        return self.loading.total_s / self.training.total_s if self.training.total_s > 0 else None

    def __str__(self) -> str:
        return _text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything above, for JSON."""
        derived = ("seconds", "samples_per_s", "steady_samples_per_s", "loading_share", "loading_per_training")
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}


def _text(summary: StepSummary) -> str:
    """Return counts and the rate, one row each for waiting and training, and the waits that these leave out."""
    if not summary.steps:
        return "no steps yet"
    counts = f"{counted(summary.steps, 'step')} in {counted(summary.epochs, 'epoch')}"
    if summary.samples:
        rate = per_second(summary.samples_per_s)
        counts += f", {counted(summary.samples, 'sample')}: {rate} samples/s"
    rows = [
        _TITLES,
        _row("waiting for data", summary.loading_share, summary.loading),
        _row("training", 1 - summary.loading_share, summary.training),
    ]
    table = [f"{name:<16}" + "".join(f"{cell:>11}" for cell in cells) for name, *cells in rows]
    first = quantity(summary.first_batches_s, "s")
    return "\n".join([counts, *table, f"first batches of epochs: {first} in all, not in these shares"])


def _row(name: str, share: float, times: Times) -> tuple[str, ...]:
    seconds = (times.mean_s, times.p50_s, times.p99_s, times.max_s)
    return (name, f"{share:.1%}", *(quantity(value, "s") for value in seconds))
