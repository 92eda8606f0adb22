"""``fastio plan``: what the epochs of a training will read, on how many nodes ever."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.options import beside_options, remote_options, split_fields
from fastio.cli.result import html_option, show
from fastio.cli.screen import SIZE, steps

__all__ = [
    "plan",
]


if TYPE_CHECKING:
    from fastio.measure.plan import EpochPlan, PlanOptions, TrainingPlan
    from fastio.store.beside.joined import Beside
    from fastio.store.files.remote_options import Remote

    _ParamType = click.ParamType[tuple[int, int]]
else:
    _ParamType = click.ParamType  # not generic before click 8.2


_MOST_BATCH = 1 << 31  # samples of a rank's batch
_MOST_EPOCHS = 100_000


class _World(_ParamType):
    """Nodes and the ranks of each: 8x8; a number alone is that of the ranks of one node."""

    name = "world"
    between = "x"  # its two numbers, as they are typed

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = re.fullmatch(r"(?:([1-9][0-9]{0,17})x)?([1-9][0-9]{0,17})", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a world; expected NODESxRANKS, e.g. 8x8, or RANKS", param, ctx)
        return int(match[1] or 1), int(match[2])


@click.command()
@click.argument("store")
@click.option(
    "--world",
    type=_World(),
    metavar="NODESxRANKS",
    default="1x1",
    show_default=True,
    help="Nodes, and ranks on each. A number alone: ranks of one node.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1, max=_MOST_BATCH),
    metavar="N",
    default=256,
    show_default=True,
    help="Samples per batch of one rank.",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1, max=_MOST_EPOCHS),
    metavar="N",
    default=3,
    show_default=True,
    help="How many epochs to plan.",
)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Shuffle, as in training.")
@click.option("--full", is_flag=True, help='A full shuffle in any case: shuffle="full".')
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=(1 << 64) - 1),
    metavar="N",
    default=0,
    show_default=True,
    help="The loader's seed.",
)
@click.option("--drop-last", is_flag=True, help="Leave out a short last batch.")
@click.option(
    "--uneven",
    type=click.Choice(["pad", "drop", "repeat"]),
    default="pad",
    show_default=True,
    help="What happens to samples that ranks cannot share equally.",
)
@click.option("--fields", metavar="NAME,...", help="Read only these fields.  [default: all]")
@click.option(
    "--memory",
    type=SIZE,
    metavar="SIZE",
    help="What a training machine's memory holds of the store, which decides what --shuffle means.  "
    "[default: half of this machine's memory]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@beside_options
@remote_options
@html_option
def plan(
    store: str,
    *,
    epochs: int,
    as_json: bool,
    full: bool,
    shuffle: bool,
    beside: Beside,
    remote: Remote,
    **settings: Any,
) -> None:
    """
    Count what the epochs of a training on STORE will read.

    For any number of nodes, before it runs: the reads and the bytes of each node, and repeated samples.

    Counted with the code that loads, for each rank of each epoch. Only the index is read, so it can run anywhere.

    \b
    Example:
      fastio plan train.lmdb --world 8x8 --batch-size 256 --epochs 90
    """
    from fastio.dataset.fast_dataset import FastDataset
    from fastio.measure.plan import TrainingPlan
    from fastio.measure.report.plan import plan_page

    if full and not shuffle:
        raise click.UsageError("--full with --no-shuffle: drop one of the two")
    names = split_fields(settings.pop("fields"))
    options = _options(settings, shuffle="full" if full else shuffle)
    fields = names[0] if names is not None and len(names) == 1 else names
    with FastDataset(beside.open(store, remote=remote), fields=fields) as dataset:
        training = TrainingPlan(dataset, options)
        progress = nullcontext() if as_json else steps("planning")
        with progress as on_step, closing(training.epochs(epochs)) as coming:
            plans = []
            for planned in coming:
                plans.append(planned)
                if on_step is not None:
                    on_step(len(plans), epochs)
        form = _form(store, training, plans)
    show("plan", form, plan_page, as_json=as_json)


def _options(settings: dict[str, Any], *, shuffle: Any) -> PlanOptions:
    from fastio.measure.plan import PlanOptions

    nodes, ranks = settings["world"]
    return PlanOptions(
        nodes=nodes,
        ranks=ranks,
        batch_size=settings["batch_size"],
        shuffle=shuffle,
        seed=settings["seed"],
        drop_last=settings["drop_last"],
        uneven=settings["uneven"],
        memory_bytes=settings["memory"],
    )


def _form(store: str, training: TrainingPlan, plans: Sequence[EpochPlan]) -> dict[str, Any]:
    options, shuffle = training.options, training.shuffle
    return {
        "store": store,
        "samples": training.division.count,
        "sample_bytes": int(training.sizes.sum()),
        **dataclasses.asdict(options),
        "order": None if shuffle is None else dataclasses.asdict(shuffle),
        "order_text": _order_text(training),
        "is_held": training.is_held,
        "epochs": [dataclasses.asdict(planned) for planned in plans],
    }


def _order_text(training: TrainingPlan) -> str:
    if training.shuffle is not None:
        return str(training.shuffle)
    return 'shuffle="full": a full shuffle' if training.options.shuffle else "in stored order"
