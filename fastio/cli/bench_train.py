"""``fastio bench train``: trains a real network on the data and times it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fastio.cli.data_options import DATA_NAMES, data_options
from fastio.cli.group import Sections
from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.model_options import MODEL_NAMES, MODEL_OPTION_NAMES, for_model, model_options
from fastio.cli.screen import printable, steps, table
from fastio.types.units import counted, number, per_second, size

if TYPE_CHECKING:
    from fastio.measure.loop.data import Data, DataOptions
    from fastio.measure.loop.step_summary import StepSummary
    from fastio.measure.loop.verdict import Verdict
    from fastio.trainer import StepOptions, TrainResult, TrainStep, Workload

__all__ = ["train"]


@click.command(cls=Sections, sections={"Loading": DATA_NAMES, "Network": MODEL_OPTION_NAMES})
@click.option("--model", type=click.Choice(MODEL_NAMES), required=True, help="The network to train.")
@click.option("--data", required=True, metavar="DATA|synthetic", help="The data to train on; synthetic is random data.")
@data_options("the model's")
@model_options
@click.option(
    "--steps",
    "count",
    type=click.IntRange(min=1),
    metavar="N",
    default=100,
    show_default=True,
    help="How many steps to train.",
)
@click.option("--test", metavar="DATA", help="Also measure the accuracy on DATA after the training.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def train(
    *,
    model: str,
    data: str,
    options: DataOptions,
    step_options: Callable[[], StepOptions],
    count: int,
    test: str | None,
    as_json: bool,
) -> None:
    """
    Train a network on DATA. Shows samples per second, the time spent waiting for data, and the loss.

    cifar10cnn has four convolutions (Adam 1e-4, batches of 128); resnet50 is version 1.5 (SGD, batches of 256);
    transformer predicts the next token of token ids (AdamW, batches of 32). DATA is a store, a folder of picture
    files or MODULE:FUNCTION that returns a loader. "synthetic" repeats one random batch: the most that training alone
    can reach. Start it with torchrun or srun to train on several ranks.

    \b
    Example:
      fastio bench train --model cifar10cnn --data train.lmdb --shuffle --steps 500
      fastio bench train --model resnet50 --data photos.lmdb --crop 224 --augment --amp bf16 --channels-last
      fastio bench train --model transformer --data text.h5 --compile
      torchrun --nproc-per-node 2 -m fastio bench train --model cifar10cnn --data train.lmdb
    """
    from fastio.report.training import training_page
    from fastio.trainer import MODELS, SYNTHETIC, TrainStep, accuracy, open_training
    from fastio.trainer.distributed import every_rank, process_group

    settings = step_options()
    options = for_model(MODELS[model], data, options)
    with process_group(settings.device) as (rank, world_size):
        if test is not None and world_size > 1:
            raise click.UsageError("--test needs a single rank: drop it")
        with (
            open_training(data, MODELS[model], options, settings=settings) as (opened, workload),
            _opened_test(test, opened, workload, options, settings) as tested,
        ):
            step = TrainStep(workload, settings, where=data)
            result = _trained(opened, step, count, is_shown=rank == 0 and not as_json)
            right = None if tested is None else accuracy(step, tested.loader)
        ranks = every_rank(result.summary)
    if rank > 0:
        return
    limit = None if data == SYNTHETIC else _verdict(ranks)
    verdict = None if limit is None else dataclasses.asdict(limit)
    about = {"data": data, "model": model, **_settings(step)}
    form = about | _figures(result, ranks) | {"test_accuracy": right, "verdict": verdict}
    write_html(lambda: training_page(form))
    if as_json:
        echo_json("bench.train", form)
        return
    _print(data, step, result, ranks)
    if right is not None:
        click.echo(f"accuracy on {printable(str(test))}: {right:.2%}")
    _print_verdict(limit)


def _trained(opened: Data, step: TrainStep, count: int, *, is_shown: bool) -> TrainResult:
    from fastio.trainer import train as train_steps

    if not is_shown:
        return train_steps(opened, step, count)
    with steps("training") as on_step:
        return train_steps(opened, step, count, on_step=on_step)


@contextmanager
def _opened_test(
    test: str | None, trained_on: Data, workload: Workload, options: DataOptions, settings: StepOptions
) -> Iterator[Data | None]:
    """Open the data of --test before the training begins, so that mistakes in them show at once."""
    from fastio.trainer import open_test

    if test is None:
        yield None
        return
    plain = dataclasses.replace(options, shuffle=False, augment=False, threads=None, workers=None)
    with open_test(test, workload, plain, settings=settings, trained_on=trained_on) as opened:
        yield opened


def _verdict(ranks: list[StepSummary]) -> Verdict:
    """Return the verdict for the rank that waits longest: the others wait for it."""
    from fastio.measure.loop.verdict import StepShares, verdict

    return verdict(shares=StepShares(loading=max(rank.loading_share for rank in ranks)))


def _settings(step: TrainStep) -> dict[str, object]:
    options = step.options
    return {
        "parameters": step.parameters,
        "device": str(options.device),
        "amp": options.amp,
        "tf32": options.tf32,
        "channels_last": options.channels_last,
        "compiled": options.compiled,
    }


def _figures(result: TrainResult, ranks: list[StepSummary]) -> dict[str, object]:
    return {
        "samples_per_s": sum(rank.steady_samples_per_s for rank in ranks),
        "first_loss": result.first_loss,
        "last_loss": result.last_loss,
        "losses": result.losses,
        "warm_up": result.warm_up,
        "peak_bytes": result.peak_bytes,
        "ranks": [rank.as_dict() for rank in ranks],
        "timeline": dataclasses.asdict(result.timeline),
    }


def _print(data: str, step: TrainStep, result: TrainResult, ranks: list[StepSummary]) -> None:
    options = step.options
    precision = ("TF32" if options.tf32 else "float32") if options.amp == "off" else options.amp
    words = [f"{number(step.parameters)} parameters", precision, str(options.device)]
    words += ["channels_last"] * options.channels_last + ["compiled"] * options.compiled
    click.echo(f"{printable(data)}: {step.workload.name}, {', '.join(words)}\n")
    rows = [_row(f"rank {number}" if len(ranks) > 1 else "training", rank) for number, rank in enumerate(ranks)]
    if len(ranks) > 1:
        rows.append(("all ranks", per_second(sum(rank.steady_samples_per_s for rank in ranks)), "", "", ""))
    titles = ("", "samples/s", "loading ms/step", "training ms/step", "waits for data")
    table(titles, rows, right=(1, 2, 3, 4))
    batch = ranks[0].samples / ranks[0].steps
    click.echo(f"\n{counted(ranks[0].steps, 'step')} of {batch:,.0f} samples timed, after {result.warm_up} to warm up")
    click.echo(f"loss {result.first_loss:.4f} in the first tenth of the steps, {result.last_loss:.4f} in the last")
    if result.peak_bytes is not None:
        click.echo(f"peak memory on the device {size(result.peak_bytes)}")


def _print_verdict(limit: Verdict | None) -> None:
    if limit is None:
        click.echo("\nnothing was loaded: compare this limit of training with DATA of your own")
    else:
        click.echo(f"\n{limit}")


def _row(name: str, summary: StepSummary) -> tuple[str, str, str, str, str]:
    rate = per_second(summary.steady_samples_per_s)
    parts = (f"{part.mean_s * 1e3:.2f}" for part in (summary.loading, summary.training))
    loading, training = parts
    return name, rate, loading, training, f"{summary.loading_share:.2%}"
