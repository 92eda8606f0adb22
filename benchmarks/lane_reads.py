"""What an order in lanes costs: blocks read, distinct classes in a batch, milliseconds to plan an epoch.

python -m benchmarks.lane_reads [--count 200000] [--classes 1000] [--sample-kb 105] [--memory-gb 4] [--batch 256]

The samples are sorted by class; nothing is read. "blocks" counts those that ranks take samples from, relative to the
blocks of the store: 1 where each is read by one rank alone. The first table divides the same global batch among more
ranks; the second continues the epoch of the first row in other divisions, whose lanes stay as they were chosen; the
third plans 10,000,000 samples for one rank.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from fastio.samplers.batches import OrderSampler
from fastio.samplers.choice import Choice
from fastio.samplers.lanes import LaneOrder, Lanes
from fastio.samplers.memory import PageCache
from fastio.samplers.order import Division, Shuffle

__all__ = ["main"]

_RANKS = (1, 8, 16, 64)
_OTHER_RANKS = (4, 12, 24, 48, 64, 128, 256)
_OTHER_BATCHES = (32, 33, 64, 256)
_MANY = 10_000_000
_ROUNDS = 5


def blocks_read(order: LaneOrder, division: Division) -> float:
    """Pairs of a rank and a block that it takes samples from, for each block that any rank does."""
    shares = order.shares(division, range(division.world_size))
    blocks = np.searchsorted(order.edges, order.order[shares], side="right")
    pairs = blocks + len(order.edges) * np.arange(division.world_size)[:, None]
    return len(np.unique(pairs)) / len(np.unique(blocks))


def chosen(division: Division, *, sample_kb: int, classes: int, memory_gb: float) -> OrderSampler:
    """The sampler of the first rank, for samples sorted by class."""
    count = division.count
    return OrderSampler(
        division,
        rank=0,
        shuffle=True,
        seed=0,
        sizes=lambda: np.full(count, sample_kb * 1000, np.int64),
        labels=lambda: np.arange(count) * classes // count,
        memory=lambda: PageCache(int(memory_gb * 1e9)),
    )


def other_divisions(lanes: Lanes, count: int, consumed: int) -> Iterator[dict[str, Any]]:
    """Blocks read when other ranks continue behind ``consumed`` samples."""
    order = LaneOrder(lanes, count, seed=0, epoch=1)
    for world in _OTHER_RANKS:
        for batch in _OTHER_BATCHES:
            division = Division(count, batch, world, start=consumed)
            if world <= lanes.lanes and division.full_steps:
                is_aligned = consumed % lanes.lanes == batch * world % lanes.lanes == 0
                blocks = round(blocks_read(order, division), 3)
                yield {"ranks": world, "batch": batch, "lanes_divide_steps": is_aligned, "blocks": blocks}


def planned_ms(shuffle: Shuffle, world: int) -> list[float]:
    """Milliseconds of CPU time in which one rank plans many samples, a few times."""
    sampler = OrderSampler(
        Division(_MANY, 256, world),
        rank=world // 2,
        shuffle=shuffle,
        seed=0,
        sizes=lambda: np.full(_MANY, 100_000, np.int64),
        memory=lambda: PageCache(64 * 10**9),
    )
    sampler.adopt(Choice("lanes", Lanes(256, 930)).to_json())
    spent = []
    for epoch in range(_ROUNDS):
        begun = time.process_time()
        sampler.plan(epoch)
        spent.append(1000 * (time.process_time() - begun))
    return spent


@click.command()
@click.option("--count", default=200_000, show_default=True)
@click.option("--classes", default=1000, show_default=True)
@click.option("--sample-kb", default=105, show_default=True)
@click.option("--memory-gb", default=4.0, show_default=True)
@click.option("--batch", default=256, show_default=True, help="Of all ranks together.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write all figures to this JSON file.")
def main(count: int, classes: int, sample_kb: int, memory_gb: float, batch: int, out: Path | None) -> None:
    """Print the three tables."""
    same, labels = [], np.arange(count) * classes // count
    for world in _RANKS:
        division = Division(count, batch // world, world)
        sampler = chosen(division, sample_kb=sample_kb, classes=classes, memory_gb=memory_gb)
        form = dict(sampler.configuration()["order"])
        if form.pop("kind") != "lanes":
            raise click.UsageError(f"{world} ranks: {sampler.report()}: take another memory or batch")
        order = LaneOrder(Lanes(**form), count, seed=0, epoch=1)
        steps = order.order[: count // batch * batch].reshape(-1, batch)
        distinct = float(np.mean([len(np.unique(labels[step])) for step in steps[:: max(1, len(steps) // 100)]]))
        blocks = round(blocks_read(order, division), 3)
        same.append({"ranks": world, **form, "blocks": blocks, "classes": round(distinct, 1)})
        click.echo(
            f"{world:3} ranks: {form['lanes']} lanes of {form['rounds']} blocks; blocks {blocks:.3f}; "
            f"{distinct:.0f} classes in a batch of {batch}"
        )
    lanes = Lanes(same[0]["lanes"], same[0]["rounds"])
    others = list(other_divisions(lanes, count, count // 4 // batch * batch))
    for row in others:
        how = "lanes divide its steps" if row["lanes_divide_steps"] else "lanes do not divide its steps"
        click.echo(
            f"continued by {row['ranks']:3} ranks, batches of {row['batch']:3}: blocks {row['blocks']:.3f}; {how}"
        )
    kinds: tuple[tuple[str, Shuffle], ...] = (("lanes", True), ("full", "full"), ("sequential", False))
    planned = {f"{name}, {world} ranks": planned_ms(kind, world) for name, kind in kinds for world in (1, 64)}
    for name, spent in planned.items():
        click.echo(
            f"{_MANY:,} samples, {name}: {median(spent):.0f} ms of CPU ({min(spent):.0f}-{max(spent):.0f}) for one rank"
        )
    if out is not None:
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        figures = {"same_batch": same, "continued": others, "planned_cpu_ms": planned, "versions": versions}
        out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
