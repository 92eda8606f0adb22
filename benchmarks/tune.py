"""How good the setting is that ``tune`` chooses: its rate compared with that of every point of the full grid.

python -m benchmarks.tune DATA... [--repeats 5] [--rounds 5] [--seconds 30] [--crop 224] [--batch-size 256]

After each choice all points are measured in interleaved rounds, to and fro; a round's ratio is the chosen point's rate
over that of the point which is best by the medians of its rates. 1.00 means that no better point was there.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence

import click

from fastio.measure.loop.data import DataOptions
from fastio.measure.settings.points import GridData, Point
from fastio.measure.settings.tune import candidates, loading_rate, tune

__all__ = ["main"]


@click.command()
@click.argument("data", nargs=-1, required=True)
@click.option("--repeats", default=5, show_default=True, help="Choices that are made.")
@click.option("--rounds", default=7, show_default=True, help="Rounds over the whole grid after each of them.")
@click.option("--seconds", default=30.0, show_default=True, help="Time for a choice.")
@click.option("--slice", "slice_s", default=0.7, show_default=True, help="Seconds for a point in a round of the grid.")
@click.option("--batch-size", default=256, show_default=True)
@click.option("--crop", type=int)
def main(
    data: Sequence[str],
    *,
    repeats: int,
    rounds: int,
    seconds: float,
    slice_s: float,
    batch_size: int,
    crop: int | None,
) -> None:
    """Choose, measure the full grid, and print one line of JSON for each choice."""
    for name in data:
        grid = GridData(name, DataOptions(batch_size=batch_size, shuffle=True, crop=crop))
        points = candidates(grid)
        for _ in range(repeats):
            tuned = tune(grid, points, seconds=seconds, progress=lambda *_: None)
            best, ratio = _beside_the_best(grid, points, tuned.point, rounds=rounds, slice_s=slice_s)
            said = {"chosen": dict(tuned.point.settings), "best": dict(best.settings), "seconds": tuned.seconds}
            click.echo(json.dumps({"data": name, "points": len(points), **said, "ratio": round(ratio, 3)}))
        grid.close()


def _beside_the_best(
    grid: GridData, points: Sequence[Point], chosen: Point, *, rounds: int, slice_s: float
) -> tuple[Point, float]:
    rates: dict[Point, list[float]] = defaultdict(list)
    for number in range(rounds):
        for point in points if number % 2 == 0 else reversed(points):
            rates[point].append(loading_rate(grid, point, seconds=slice_s))
    best = max(points, key=lambda point: statistics.median(rates[point]))
    return best, statistics.median(ours / theirs for ours, theirs in zip(rates[chosen], rates[best], strict=True))


if __name__ == "__main__":
    main()
