"""The options of commands that train one of fastio's networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from fastio.measure.loop.data import DataOptions
    from fastio.trainer import Amp, StepOptions, Workload

__all__ = ["MODEL_NAMES", "MODEL_OPTION_NAMES", "for_model", "model_options", "refuse_model_options"]

MODEL_NAMES = ("cifar10cnn", "resnet50", "transformer")
MODEL_OPTION_NAMES = ("amp", "tf32", "channels_last", "compiled", "device")

_OPTIONS = (
    click.option(
        "--amp",
        type=click.Choice(("off", "fp16", "bf16")),
        default="off",
        show_default=True,
        help="Mixed precision; fp16 with a GradScaler.",
    ),
    click.option(
        "--tf32", is_flag=True, help="Multiply float32 as TF32: faster on a GPU, but only 10 bits of mantissa."
    ),
    click.option("--channels-last", is_flag=True, help="Keep weights and pictures in channels_last memory format."),
    click.option(
        "--compile", "compiled", is_flag=True, help="Compile the network with torch.compile; drops a short last batch."
    ),
    click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.  [default: cuda if there is one]"),
)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """
    Add these options to a command, which gets a function that builds StepOptions as its argument ``step_options``.
    """

    @wraps(command)
    def with_options(
        *args: Any, amp: Amp, tf32: bool, channels_last: bool, compiled: bool, device: str | None, **rest: Any
    ) -> None:
        def step_options() -> StepOptions:
            from fastio.trainer import StepOptions
            from fastio.trainer.distributed import local_device

            return StepOptions(
                device=local_device(device), amp=amp, tf32=tf32, channels_last=channels_last, compiled=compiled
            )

        command(*args, step_options=step_options, **rest)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def refuse_model_options() -> None:
    """Raise UsageError if one of these options is given but no model is trained."""
    context = click.get_current_context()
    for name in MODEL_OPTION_NAMES:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = "compile" if name == "compiled" else name.replace("_", "-")
            raise click.UsageError(f"--{option} has no effect without --model")


def for_model(workload: Workload, data: str, options: DataOptions) -> DataOptions:
    """Return the options with the model's own batch size, unless one was given or the loader is the user's."""
    from dataclasses import replace

    from fastio.measure.loop.data import is_function

    asked = click.get_current_context().get_parameter_source("batch_size")
    if is_function(data) or asked is not ParameterSource.DEFAULT:
        return options
    return replace(options, batch_size=workload.batch_size)
