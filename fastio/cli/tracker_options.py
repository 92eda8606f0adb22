"""The options of ``fastio monitor`` that send figures elsewhere, gathered into one argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastio.measure.trackers import Tracker

__all__ = ["TrackerArguments", "tracker_options"]

_OPTIONS = (
    click.option("--csv", metavar="FILE", help="Also append every sample to FILE as a row of CSV."),
    click.option("--tensorboard", metavar="DIR", help="Also write figures to DIR for TensorBoard."),
    click.option("--wandb", metavar="PROJECT", help="Also log figures to a new run of Weights & Biases."),
    click.option("--mlflow", is_flag=True, help="Also log figures to a new run of MLflow (MLFLOW_TRACKING_URI, ...)."),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        metavar="N",
        help="Also serve figures at http://127.0.0.1:N/metrics for Prometheus; 0: any free port.",
    ),
    click.option(
        "--metrics-host",
        metavar="HOST",
        help="Address for --metrics-port. Others can read the figures at 0.0.0.0.  [default: 127.0.0.1]",
    ),
)


@dataclass(frozen=True, slots=True)
class TrackerArguments:
    """The options as given on the command line, under the options' names."""

    csv: str | None
    tensorboard: str | None
    wandb: str | None
    mlflow: bool
    metrics_port: int | None
    metrics_host: str | None

    def check(self) -> None:
        """Raise UsageError for a host without a port."""
        if self.metrics_host is not None and self.metrics_port is None:
            raise click.UsageError("--metrics-host needs a port: add --metrics-port N")

    def opened(self) -> list[Tracker]:
        """Open all that were asked for. Raises FastioError. Says on stderr where figures are served."""
        from fastio.measure.trackers import CSV, MLflow, OpenMetrics, TensorBoard, WandB

        trackers: list[Tracker] = []
        if self.metrics_port is not None:
            server = OpenMetrics(self.metrics_port, self.metrics_host or "127.0.0.1")
            click.echo(f"figures: {server.url}", err=True)
            trackers.append(server)
        if self.csv is not None:
            trackers.append(CSV(self.csv))
        if self.tensorboard is not None:
            trackers.append(TensorBoard(self.tensorboard))
        if self.wandb is not None:
            trackers.append(WandB(self.wandb))
        if self.mlflow:
            trackers.append(MLflow())
        return trackers


def tracker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``trackers``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        trackers = TrackerArguments(**{name: options.pop(name) for name in TrackerArguments.__slots__})
        trackers.check()
        command(*args, trackers=trackers, **options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
