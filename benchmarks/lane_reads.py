"""What an order in lanes costs: blocks read, distinct classes in a batch, milliseconds to plan an epoch.

python -m benchmarks.lane_reads [--count 200000] [--classes 1000] [--sample-kb 105] [--memory-gb 4] [--batch 256]

The samples are sorted by class; nothing is read. Each row divides the same global batch among more ranks. "blocks"
counts those that ranks take samples from, relative to the blocks of the store: 1 where each is read by one rank alone.
"""

from __future__ import annotations

import time

import click
import numpy as np

from fastio.samplers.batches import OrderSampler
from fastio.samplers.lanes import LaneOrder, Lanes
from fastio.samplers.order import Division
from fastio.samplers.page_cache import PageCache

__all__ = ["main"]

_RANKS = (1, 8, 16, 64)


def blocks_read(order: LaneOrder, division: Division) -> float:
    """Pairs of a rank and a block that it takes samples from, for each block of the store."""
    used = 0
    for rank in range(division.world_size):
        samples = order.order[order.share(division, rank)]
        used += len(np.unique(np.searchsorted(order.edges, samples, side="right")))
    return used / (len(order.edges) - 1)


@click.command()
@click.option("--count", default=200_000, show_default=True)
@click.option("--classes", default=1000, show_default=True)
@click.option("--sample-kb", default=105, show_default=True)
@click.option("--memory-gb", default=4.0, show_default=True)
@click.option("--batch", default=256, show_default=True, help="Of all ranks together.")
def main(count: int, classes: int, sample_kb: int, memory_gb: float, batch: int) -> None:
    """Print a row for 1, 8, 16 and 64 ranks."""
    sizes, labels = np.full(count, sample_kb * 1000, np.int64), np.arange(count) * classes // count
    for world in _RANKS:
        division = Division(count, batch // world, world)
        sampler = OrderSampler(
            division,
            rank=0,
            shuffle=True,
            seed=0,
            sizes=lambda: sizes,
            labels=lambda: labels,
            memory=lambda: PageCache(int(memory_gb * 1e9)),
        )
        said = dict(sampler.configuration()["order"])
        begun = time.process_time()
        batches = sampler.plan(1)
        spent_ms = 1000 * (time.process_time() - begun)
        if said.pop("kind") != "lanes":
            click.echo(f"{world:3} ranks: {sampler.report()}; planned in {spent_ms:.0f} ms")
            continue
        order = LaneOrder(Lanes(**said), count, seed=0, epoch=1)
        steps = order.order[: count // batch * batch].reshape(-1, batch)
        distinct = np.mean([len(np.unique(labels[step])) for step in steps[:: max(1, len(steps) // 100)]])
        click.echo(
            f"{world:3} ranks: {said['lanes']} lanes of {said['rounds']} blocks; "
            f"blocks {blocks_read(order, division):.3f}; {distinct:.0f} classes in a batch of {batch}; "
            f"{len(batches.indices):,} samples planned in {spent_ms:.0f} ms"
        )


if __name__ == "__main__":
    main()
