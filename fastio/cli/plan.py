"""``fastio plan``: what the epochs of a training will read, on how many nodes ever."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.options import remote_options, split_fields
from fastio.cli.result import echo_json, html_option, write_html
from fastio.cli.screen import SIZE, printable, steps, table
from fastio.types.units import counted, duration, number, size

__all__ = [
    "plan",
]


if TYPE_CHECKING:
    from fastio.measure.plan import EpochPlan, PlanOptions, TrainingPlan
    from fastio.store.files.remote_options import Remote

    _ParamType = click.ParamType[tuple[int, int]]
    _RateType = click.ParamType[float]
else:
    _ParamType = _RateType = click.ParamType  # not generic before click 8.2


_MOST_BATCH = 1 << 31  # samples of a rank's batch
_MOST_EPOCHS = 100_000


class _World(_ParamType):
    """Nodes and the ranks of each: 8x8; a number alone is that of the ranks of one node."""

    name = "world"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = re.fullmatch(r"(?:([1-9][0-9]{0,17})x)?([1-9][0-9]{0,17})", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a world; expected NODESxRANKS, e.g. 8x8, or RANKS", param, ctx)
        return int(match[1] or 1), int(match[2])


class _PerSecond(type(SIZE)):  # type: ignore[misc]
    """Bytes per second: 2GB/s; a size alone means the same."""

    name = "size/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        rate = 0
        with suppress(click.BadParameter, OverflowError):  # no size, or too large for a float
            rate = super().convert(value if isinstance(value, int) else str(value).removesuffix("/s"), param, ctx)
        if rate <= 0:
            self.fail(f"{value!r}: expected a finite number of bytes above 0, e.g. 2GB/s", param, ctx)
        return rate


class _Rate(_RateType):
    """Samples per second."""

    name = "samples/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        rate = 0.0
        with suppress(ValueError):
            rate = float(str(value))
        if not 0 < rate < math.inf:
            self.fail(f"{value!r}: expected a finite number above 0", param, ctx)
        return rate


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
    "--batch",
    "batch_size",
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
@click.option(
    "--cache", type=SIZE, metavar="SIZE", help="Memory or local disk of each node that keeps what was read last."
)
@click.option(
    "--rate",
    type=_Rate(),
    metavar="SAMPLES/S",
    help="What all ranks together train per second. With --disk: where they would wait.",
)
@click.option("--disk", type=_PerSecond(), metavar="SIZE/S", help="What the disk of each node reads per second.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@remote_options
@html_option
def plan(store: str, *, epochs: int, as_json: bool, full: bool, shuffle: bool, remote: Remote, **settings: Any) -> None:
    """
    Count what the epochs of a training on STORE will read.

    For any number of nodes, before it runs: reads, bytes, repeated samples, how well classes are mixed, what a cache
    would hold, and where training would wait for disks.

    Counted with the code that loads, for each rank of each epoch. Only the index is read, so it can run anywhere.

    \b
    Example:
      fastio plan train.lmdb --world 8x8 --batch-size 256 --epochs 90
      fastio plan train.lmdb --world 8x8 --cache 200GB --rate 20000 --disk 2GB/s
    """
    from fastio.dataset.fast_dataset import FastDataset
    from fastio.measure.plan import TrainingPlan
    from fastio.store import open_store

    if full and not shuffle:
        raise click.UsageError("--full with --no-shuffle: drop one of the two")
    if (settings["rate"] is None) != (settings["disk"] is None):
        raise click.UsageError("--rate and --disk belong together: waiting depends on both")
    names = split_fields(settings.pop("fields"))
    options = _options(settings, shuffle="full" if full else shuffle)
    fields = names[0] if names is not None and len(names) == 1 else names
    with FastDataset(open_store(store, remote=remote), fields=fields) as dataset:
        training = TrainingPlan(dataset, options)
        progress = nullcontext() if as_json else steps("planning")
        with progress as on_step, closing(training.epochs(epochs)) as coming:
            plans = []
            for planned in coming:
                plans.append(planned)
                if on_step is not None:
                    on_step(len(plans), epochs)
        form = _form(store, training, plans)
    if as_json:
        echo_json("plan", form)
    else:
        print_plan(form)
    write_html(lambda: _page(form))


def _page(form: dict[str, Any]) -> Any:
    from fastio.measure.report.plan import plan_page

    return plan_page(form)


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
        cache_bytes=settings["cache"],
        samples_per_s=settings["rate"],
        disk_bytes_per_s=settings["disk"],
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


# What ``fastio plan`` prints for people.

_MOST_ROWS = 8  # epochs; of more, the first ones and the last one are shown
_EXACT = (
    "exact: what the loader asks the files for, with this seed, on any machine; what memory answers of it depends on "
    "the machine"
)


def print_plan(plan: Mapping[str, Any]) -> None:
    """Print the form ``fastio.plan``."""
    for line in _head(plan):
        click.echo(line)
    click.echo()
    epochs = plan["epochs"]
    columns = _columns(plan)
    rows = [[str(epoch["epoch"]), *(cell(epoch) for _, cell in columns)] for epoch in epochs]
    if len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 2], ["..."] + [""] * len(columns), rows[-1]]
    table(["epoch", *(title for title, _ in columns)], rows, right=range(len(columns) + 1))
    if plan["nodes"] > 1:
        click.echo()
        _print_nodes(plan)
    click.echo()
    for line in _conclusions(plan):
        click.echo(line)


def _head(plan: Mapping[str, Any]) -> list[str]:
    first = plan["epochs"][0]
    world = plan["nodes"] * plan["ranks"]
    where = f"{counted(plan['nodes'], 'node')} of {counted(plan['ranks'], 'rank')}"
    parts = [f"repeats {number(first['repeated'])}"] if first["repeated"] else []
    parts += [f"leaves out {number(first['dropped'])}"] if first["dropped"] else []
    what = f"; each epoch {' and '.join(parts)} of them ({_cause(plan)})" if parts else ""
    return [
        f"{printable(plan['store'])}: {counted(plan['samples'], 'sample')}, {size(plan['sample_bytes'])}",
        f"{where}, batches of {number(plan['batch_size'])}: {_steps(first, plan['batch_size'] * world)}{what}",
        plan["order_text"],
    ]


def _steps(epoch: Mapping[str, Any], full: int) -> str:
    """Return how many steps an epoch has and of how many samples, of which the last may have fewer than ``full``."""
    last = epoch["samples"] - (epoch["steps"] - 1) * full
    if epoch["steps"] == 1:
        return f"1 step of {counted(last, 'sample')}"
    rest = f", the last of {number(last)}" if last < full else ""
    return f"{counted(epoch['steps'], 'step')} of {counted(full, 'sample')}{rest}"


def _cause(plan: Mapping[str, Any]) -> str:
    """Return the options that make an epoch repeat or leave out samples."""
    first = plan["epochs"][0]
    is_uneven = first["repeated"] or (plan["uneven"] == "drop" and plan["nodes"] * plan["ranks"] > 1)
    causes = [f"uneven={plan['uneven']!r}"] if is_uneven else []
    causes += ["drop_last=True"] if first["dropped"] and plan["drop_last"] else []
    return ", ".join(causes)


def _columns(plan: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return titles, and what a cell shows of an epoch."""
    whole = max(1, plan["sample_bytes"])
    columns = [
        ("reads", lambda epoch: number(_sum(epoch, "reads"))),
        ("asked for", lambda epoch: size(_sum(epoch, "asked_bytes"))),
        ("of the store", lambda epoch: f"{_sum(epoch, 'asked_bytes') / whole:.3f} x"),
    ]
    if plan["cache_bytes"] is not None:
        columns.append(("from cache", lambda epoch: f"{_cached(epoch):.1%}"))
        columns.append(("from disk", lambda epoch: size(_sum(epoch, "read_bytes"))))
    if plan["epochs"][0]["mixing"] is not None:
        columns.append(("mixing", lambda epoch: f"{epoch['mixing']:.3f}"))
        columns.append(("drift", lambda epoch: f"{epoch['drift']:.3f}"))
    if plan["epochs"][0]["waits"] is not None:
        columns += [
            ("takes", lambda epoch: duration(epoch["waits"]["seconds"])),
            ("waits at start", lambda epoch: _seconds(epoch["waits"]["start_s"])),
            ("later", lambda epoch: _seconds(epoch["waits"]["later_s"])),
            ("first at step", lambda epoch: _step(epoch["waits"]["first_step"])),
        ]
    return columns


def _print_nodes(plan: Mapping[str, Any]) -> None:
    """Print what each node reads, on average of the epochs."""
    has_cache = plan["cache_bytes"] is not None
    count = len(plan["epochs"])
    rows = []
    for node in range(plan["nodes"]):
        reads = [epoch["nodes"][node] for epoch in plan["epochs"]]
        asked, read = (sum(part[name] for part in reads) for name in ("asked_bytes", "read_bytes"))
        row = [str(node), number(round(sum(part["reads"] for part in reads) / count)), size(asked / count)]
        rows.append(row + ([f"{1 - read / max(1, asked):.1%}", size(read / count)] if has_cache else []))
    titles = ["node", "reads an epoch", "asked for", *(["from cache", "from disk"] if has_cache else [])]
    table(titles, rows, right=range(len(titles)))


def _conclusions(plan: Mapping[str, Any]) -> list[str]:
    lines = [_EXACT]
    if plan["is_held"] and plan["cache_bytes"] is None:
        lines.append(
            f"memory ({size(plan['order']['memory_bytes'])}) holds the store: after the first epoch it answers all of "
            "this"
            if plan["order"]
            else "memory holds the store: after the first epoch it answers all of this"
        )
    if plan["cache_bytes"] is not None:
        lines.append(f"a cache of {size(plan['cache_bytes'])} a node keeps the samples that were read last")
    if plan["disk_bytes_per_s"] is not None:
        lines.append(_waiting(plan))
    return lines


def _waiting(plan: Mapping[str, Any]) -> str:
    waits = [(epoch["epoch"], epoch["waits"]) for epoch in plan["epochs"]]
    total = sum(wait["seconds"] for _, wait in waits)
    later, start = (sum(wait[name] for _, wait in waits) for name in ("later_s", "start_s"))
    rates = f"at {number(plan['samples_per_s'])} samples/s and {size(plan['disk_bytes_per_s'])}/s a node"
    first = next(((epoch, wait["first_step"]) for epoch, wait in waits if wait["first_step"] is not None), None)
    begins = f"beginnings of epochs wait {_seconds(start)} in all"
    if first is None:
        return f"{rates}, {duration(total)}: no step waits for a disk; {begins}"
    steps = sum(wait["steps"] for _, wait in waits)
    return (
        f"{rates}, {duration(total)}: step {number(first[1])} of epoch {first[0]} is the first that waits for a disk; "
        f"{counted(steps, 'step')} wait {_seconds(later)} in all ({later / total:.1%}); {begins}"
    )


def _sum(epoch: Mapping[str, Any], name: str) -> int:
    nodes: Sequence[Mapping[str, int]] = epoch["nodes"]
    return sum(node[name] for node in nodes)


def _cached(epoch: Mapping[str, Any]) -> float:
    return 1 - _sum(epoch, "read_bytes") / max(1, _sum(epoch, "asked_bytes"))


def _seconds(seconds: float) -> str:
    return duration(seconds) if seconds > 0 else "0 s"


def _step(step: int | None) -> str:
    return "-" if step is None else number(step)
