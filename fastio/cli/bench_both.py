"""``fastio bench both``: how fast loading is alone, how fast training is alone, and which one limits the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from fastio.cli.data_options import DATA_NAMES, data_options
from fastio.cli.group import Sections
from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.model_options import MODEL_NAMES, MODEL_OPTION_NAMES, for_model, model_options, refuse_model_options
from fastio.cli.screen import begun, printable, table
from fastio.types.units import per_second

if TYPE_CHECKING:
    from fastio.measure.loop.data import Data, DataOptions, Step
    from fastio.measure.loop.halves import Halves
    from fastio.trainer import StepOptions

__all__ = ["both"]


@click.command(cls=Sections, sections={"Loading": DATA_NAMES, "Network": MODEL_OPTION_NAMES})
@click.argument("data")
@data_options("256, with --model the model's")
@click.option("--model", type=click.Choice(MODEL_NAMES), help="Train one of the networks of `bench train`.")
@model_options
@click.option("--step", metavar="MODULE:FUNCTION", help="A function that returns your training step, step(batch).")
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0),
    metavar="MS",
    help="Instead of training, wait this long per step, as for a GPU.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    default=5,
    show_default=True,
    help="How long to measure each part.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def both(
    data: str,
    *,
    options: DataOptions,
    model: str | None,
    step_options: Callable[[], StepOptions],
    step: str | None,
    step_ms: float | None,
    seconds: float,
    as_json: bool,
) -> None:
    """
    Find out what limits a training: loading or the model. Loads DATA alone, trains alone on one batch, then does
    both.

    The training step comes from DATA, if that is a function which returns a loader and a step as a pair, or from
    --step. --model trains a network that ships with fastio. --step-ms replaces the step by a wait, if you only know
    how long it takes; the CPUs are then free for loading.

    \b
    Example:
      fastio bench both train.py:loader_and_step
      fastio bench both train.lmdb --step train.py:make_step
      fastio bench both ./pngs --step-ms 33
      fastio bench both ./pngs --model cifar10cnn
    """
    from fastio.measure.loop.data import open_data
    from fastio.measure.loop.halves import measure_halves
    from fastio.report.halves import halves_page

    answers = {"--model": model, "--step": step, "--step-ms": step_ms}
    given = [name for name, answer in answers.items() if answer is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    begun(f"measuring for {seconds:g} s each: loading alone, training alone, both")
    if model is not None:
        halves = _with_model(data, model, options, settings=step_options(), seconds=seconds)
    else:
        refuse_model_options()
        with open_data(data, options) as opened:
            halves = measure_halves(opened, _step(opened, step, step_ms), seconds=seconds)
    report = _as_dict(data, halves)
    if as_json:
        echo_json("bench.both", report)
    else:
        _print(data, halves)
    write_html(lambda: halves_page(report))


def _with_model(name: str, model: str, options: DataOptions, *, settings: StepOptions, seconds: float) -> Halves:
    from fastio.measure.loop.halves import measure_halves
    from fastio.trainer import MODELS, TrainStep, open_training

    options = for_model(MODELS[model], name, options)
    with open_training(name, MODELS[model], options, settings=settings) as (opened, workload):
        if opened.step is not None:
            raise click.UsageError(f"{name} returned a step of its own: drop --model")
        return measure_halves(opened, TrainStep(workload, settings, where=name), seconds=seconds)


def _step(data: Data, step: str | None, step_ms: float | None) -> Step:
    import time

    from fastio.measure.loop.data import open_step

    if data.step is not None and (step is not None or step_ms is not None):
        raise click.UsageError(f"{data.name} returned a step of its own: drop --step and --step-ms")
    if data.step is not None:
        return data.step
    if step is not None:
        return open_step(step)
    if step_ms is None:
        pair = "return a loader and step(batch) as a pair, or " if data.kind == "function" else ""
        raise click.UsageError(
            f"{data.name} has no training step: {pair}give --model, --step MODULE:FUNCTION or --step-ms"
        )
    return lambda _: time.sleep(step_ms / 1e3)


def _as_dict(data: str, halves: Halves) -> dict[str, object]:
    return {
        "data": data,
        "io_samples_per_s": halves.io.steady_samples_per_s,
        "training_samples_per_s": halves.training.samples_per_s,
        "loop_samples_per_s": halves.loop.steady_samples_per_s,
        "verdict": dataclasses.asdict(halves.verdict),
        "io": dataclasses.asdict(halves.io),
        "training": halves.training.as_dict(),
        "loop": halves.loop.as_dict(),
        "timeline": dataclasses.asdict(halves.timeline),
    }


def _print(data: str, halves: Halves) -> None:
    loop = halves.loop
    click.echo(f"{printable(data)}\n")
    rows = [
        ("loading alone", per_second(halves.io.steady_samples_per_s), "", ""),
        ("training alone", per_second(halves.training.samples_per_s), "", _ms(halves.training.training.mean_s)),
        ("both", per_second(loop.steady_samples_per_s), _ms(loop.loading.mean_s), _ms(loop.training.mean_s)),
    ]
    table(("", "samples/s", "loading ms/step", "training ms/step"), rows, right=(1, 2, 3))
    click.echo(f"\n{halves.verdict}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
