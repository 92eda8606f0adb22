"""``fastio bench``: loading, training, and both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.group import Group, LazyCommands, Sections
from fastio.cli.options import (
    DATA_SECTIONS,
    MODEL_NAMES,
    MODEL_OPTION_NAMES,
    data_options,
    for_model,
    model_options,
    refuse_model_options,
)
from fastio.cli.result import html_option, show
from fastio.cli.screen import begun, printable, steps
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.measure.loop.data import Data, DataOptions, Step
    from fastio.measure.loop.halves import Halves
    from fastio.measure.loop.step_timer import StepSummary
    from fastio.measure.loop.verdict import Verdict
    from fastio.measure.trainer.run import TrainResult
    from fastio.measure.trainer.step import StepOptions, TrainStep, Workload

__all__ = [
    "bench",
]


_COMMANDS = LazyCommands(
    {
        "both": "fastio.cli.bench",
        "io": "fastio.cli.bench",
        "train": "fastio.cli.bench",
        "grid": "fastio.cli.bench_settings",
        "decode": "fastio.cli.bench_settings",
        "disk": "fastio.cli.bench_machine",
        "bus": "fastio.cli.bench_machine",
    }
)


@click.group(cls=Group, commands=_COMMANDS, of_paths="io")
def bench() -> None:
    """
    Measure loading, training, decoding, disks and buses.

    DATA is a store, a folder of picture files, or MODULE:FUNCTION (or script.py:FUNCTION): a function of yours that
    returns any loader, or a loader and a step(batch) as a pair.

    \b
    Example:
      fastio bench io train.lmdb --shuffle --threads 4
      fastio bench both train.py:loader_and_step
    """


# ``fastio bench both``: how fast loading is alone, how fast training is alone, and which one limits the loop.


@click.command(cls=Sections, sections={**DATA_SECTIONS, "Network": MODEL_OPTION_NAMES})
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
    from fastio.measure.report.loop import halves_page

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
    show("bench.both", _as_dict(data, halves), halves_page, as_json=as_json)


def _with_model(name: str, model: str, options: DataOptions, *, settings: StepOptions, seconds: float) -> Halves:
    from fastio.measure.loop.halves import measure_halves
    from fastio.measure.trainer.run import MODELS, open_training
    from fastio.measure.trainer.step import TrainStep

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


# ``fastio bench io``: how fast data can be loaded here.


@click.command(cls=Sections, sections=DATA_SECTIONS)
@click.argument("data", nargs=-1, required=True)
@data_options("256")
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    metavar="N",
    default=3,
    show_default=True,
    help="How many passes over the data.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="Stop after this time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def io(data: tuple[str, ...], *, options: DataOptions, epochs: int, seconds: float, as_json: bool) -> None:
    """
    Load DATA in batches and throw them away. This is the most that reading and decoding can deliver.

    DATA is a store, a folder of picture files (read with Pillow in a torch DataLoader, as most scripts do; with
    --in-place by native threads), a stream of token ids (train.bin, Megatron's, or with --window a store of ids), or
    MODULE:FUNCTION that returns any loader. Pictures of different sizes need --crop
    to fit into one batch. Name several DATA to compare them, such as a folder and the store it was packed into; the
    files opened per second are shown too.

    \b
    Example:
      fastio bench io train.lmdb --batch-size 256 --epochs 5
      fastio bench io photos.lmdb --crop 224
      fastio bench io ./pngs train.lmdb
      fastio bench io ./pngs train.lmdb --in-place
      fastio bench io ./pngs train.lmdb --labels labels.csv
      fastio bench io train.bin --dtype uint16 --window 1025 --shuffle --batch-size 16
      fastio bench io train.py:make_loader
    """
    from fastio.measure.report.loop import loading_page

    reports = []
    with ExitStack() as stack:
        # All are opened before the first is measured: what cannot be read is said at once.
        every = [stack.enter_context(_opened(name, options, is_alone=len(data) == 1)) for name in data]
        for name, opened in zip(data, every, strict=True):
            begun(f"loading {printable(name)}: {counted(epochs, 'epoch')}, {seconds:g} s at most")
            with opened:
                reports.append(_measured(name, opened, epochs=epochs, seconds=seconds))
    show("bench.io", {**reports[0], "beside": reports[1:]}, loading_page, as_json=as_json)


def _opened(name: str, options: DataOptions, *, is_alone: bool) -> Data:
    """Open DATA; if it is one of several, without the options that are meant for another kind of DATA."""
    from fastio.measure.loop.data import is_function, is_picture_folder, open_data
    from fastio.store.formats import names_store
    from fastio.store.kinds.unpacked import AS_IT_IS

    if not is_alone:
        replace = dataclasses.replace
        if is_function(name) or names_store(name):
            options = replace(options, unpacked=AS_IT_IS)
        is_folder = is_picture_folder(name) and not options.in_place and options.unpacked == AS_IT_IS
        options = replace(options, threads=None) if is_folder else replace(options, workers=None)
    return open_data(name, options)


def _measured(name: str, opened: Data, *, epochs: int, seconds: float) -> dict[str, Any]:
    from fastio.errors import FastioError
    from fastio.measure.loop.data import opens_per_s
    from fastio.measure.loop.mock import MockTrainer

    result = MockTrainer().run(opened.loader, epochs=epochs, seconds=seconds)
    if result.batches == 0:
        raise FastioError(f"{name}: the loader is empty: nothing to measure")
    bytes_each = None
    if opened.size_bytes is not None and opened.samples:
        bytes_each = opened.size_bytes / opened.samples
    return {
        "data": name,
        "kind": opened.kind,
        **dataclasses.asdict(result),
        "samples_per_s": result.samples_per_s,
        "steady_samples_per_s": result.steady_samples_per_s,
        "bytes_per_s": None if bytes_each is None else result.samples_per_s * bytes_each,
        "opens_per_s": opens_per_s(opened.kind, result.samples_per_s),
    }


# ``fastio bench train``: trains a real network on the data and times it.


@click.command(cls=Sections, sections={**DATA_SECTIONS, "Network": MODEL_OPTION_NAMES})
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
    from fastio.measure.report.loop import training_page
    from fastio.measure.trainer.distributed import every_rank, process_group
    from fastio.measure.trainer.run import MODELS, SYNTHETIC, accuracy, open_training
    from fastio.measure.trainer.step import TrainStep

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
    show("bench.train", form, training_page, as_json=as_json)


def _trained(opened: Data, step: TrainStep, count: int, *, is_shown: bool) -> TrainResult:
    from fastio.measure.trainer.run import train as train_steps

    if not is_shown:
        return train_steps(opened, step, count)
    with steps("training") as on_step:
        return train_steps(opened, step, count, on_step=on_step)


@contextmanager
def _opened_test(
    test: str | None, trained_on: Data, workload: Workload, options: DataOptions, settings: StepOptions
) -> Iterator[Data | None]:
    """Open the data of --test before the training begins, so that mistakes in them show at once."""
    from fastio.measure.trainer.run import open_test

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
