"""``fastio bench grid``: loading and training time for each setting of a loader."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from fastio.cli.html_option import html_option, write_html
from fastio.cli.json_form import echo_json
from fastio.cli.screen import printable, steps, table
from fastio.types.units import counted, per_second

if TYPE_CHECKING:
    from fastio.measure.settings.grid import GridRow
    from fastio.measure.settings.points import GridData, Point, Value

__all__ = ["grid"]


@click.command()
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--batch-size", type=click.IntRange(min=1), metavar="N", default=256, show_default=True, help="Samples per batch."
)
@click.option(
    "--crop", type=click.IntRange(min=1), metavar="N", help="Resize each picture and crop its centre to N pixels."
)
@click.option(
    "--set",
    "chosen",
    multiple=True,
    metavar="NAME=V,V",
    help="Try these values of the setting NAME instead of the usual ones.",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0),
    metavar="MS",
    default=0,
    help="Wait this long per batch, as a training step would.",
)
@click.option(
    "--repeats", type=click.IntRange(min=1), metavar="N", default=3, show_default=True, help="Interleaved rounds."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.01),
    metavar="SECONDS",
    default=1,
    show_default=True,
    help="Time per row and round.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@html_option
def grid(
    data: tuple[str, ...],
    *,
    batch_size: int,
    crop: int | None,
    chosen: tuple[str, ...],
    step_ms: float,
    repeats: int,
    seconds: float,
    as_json: bool,
) -> None:
    """
    Time every setting of DATA's loader, and list the fastest first.

    A store is read by FastLoader; the settings are threads, prefetch_batches and shuffle. Name several stores to
    compare formats. A folder of pictures, or MODULE:FUNCTION that returns a map-style dataset, is read by torch's
    DataLoader; the settings are num_workers, persistent_workers, prefetch_factor, drop_last, and with CUDA pin_memory
    and non_blocking. Threads and workers never exceed the CPUs this process may use.

    \b
    Example:
      fastio bench grid train.lmdb train.h5
      fastio bench grid ./pngs --set num_workers=0,2 --set drop_last=0 --step-ms 33
    """
    from fastio.measure.loop.data import DataOptions
    from fastio.measure.settings.grid import run_grid
    from fastio.measure.settings.points import GridData
    from fastio.report.grid import grid_page

    options = DataOptions(batch_size=batch_size, crop=crop)
    with ExitStack() as opened:
        points: list[tuple[GridData, Point]] = []
        for name in data:
            grid_data = GridData(name, options)
            opened.callback(grid_data.close)
            points += [(grid_data, point) for point in grid_data.points(_values(grid_data, chosen))]
        with steps("measuring") as progress:
            rows = run_grid(
                points,
                repeats=repeats,
                seconds=seconds,
                step=lambda _: time.sleep(step_ms / 1e3) if step_ms else None,
                progress=progress,
            )
    kinds = {grid_data.name: grid_data.kind for grid_data, _ in points}
    report = {"step_ms": step_ms, "seconds": seconds, "rows": [_as_dict(row, kinds[row.point.data]) for row in rows]}
    write_html(lambda: grid_page(report))
    if as_json:
        echo_json("bench.grid", report)
    else:
        _print(rows, kinds)


def _values(data: GridData, chosen: tuple[str, ...]) -> dict[str, tuple[Value, ...]]:
    """Return the values to try for each setting, those of --set in place of the usual ones."""
    values = data.values()
    for text in chosen:
        name, _, listed = text.partition("=")
        if name not in values:
            raise click.UsageError(f"--set {text}: the settings of {data.name} are {', '.join(values)}")
        try:
            numbers = tuple(int(word) for word in listed.replace("True", "1").replace("False", "0").split(","))
        except ValueError as exc:
            raise click.UsageError(
                f"--set {text}: expected NAME=V,V with whole numbers; 0 means no, 1 means yes"
            ) from exc
        values[name] = tuple(bool(value) for value in numbers) if isinstance(values[name][0], bool) else numbers
    return values


def _as_dict(row: GridRow, kind: str) -> dict[str, object]:
    from fastio.measure.loop.folder import opens_per_s

    names = ("loading_s", "training_s", "start_s", "samples_per_s")
    return {
        "data": row.point.data,
        "settings": dict(row.point.settings),
        **{name: row.median(name) for name in names},
        "opens_per_s": opens_per_s(kind, row.median("samples_per_s")),
        **{f"{name}_spread": row.spread(name) for name in ("loading_s", "samples_per_s")},
        "repeats": len(row.repeats),
        "stopped_early": row.stopped_early,
    }


def _print(rows: list[GridRow], kinds: Mapping[str, str]) -> None:
    from fastio.measure.loop.folder import opens_per_s

    settings = list(dict.fromkeys(name for row in rows for name, _ in row.point.settings))
    several = len({row.point.data for row in rows}) > 1
    titles = [*(["data"] if several else []), *(name.replace("_", "_\n") for name in settings)]
    is_spread = any(len(row.repeats) > 1 for row in rows)
    spread = ["spread"] if is_spread else []
    opened = ["files\nopened/s"] if "folder" in kinds.values() else []
    figures = ["loading\nms/step", *spread, "training\nms/step", "start\nms", "samples/s", *opened, "repeats"]
    lines = []
    for row in rows:
        have = {name: _value(value) for name, value in row.point.settings}
        least, most = row.spread("loading_s")
        lines.append(
            [
                *([printable(row.point.data)] if several else []),
                *(have.get(name, "-") for name in settings),
                f"{row.median('loading_s') * 1e3:.2f}",
                *([f"{least * 1e3:.3g}-{most * 1e3:.3g}" if len(row.repeats) > 1 else "-"] if is_spread else []),
                f"{row.median('training_s') * 1e3:.2f}",
                f"{row.median('start_s') * 1e3:.1f}",
                per_second(row.median("samples_per_s")),
                *([_opened(opens_per_s(kinds[row.point.data], row.median("samples_per_s")))] if opened else []),
                f"{len(row.repeats)}{'*' if row.stopped_early else ' '}",
            ]
        )
    table([*titles, *figures], lines, right=range(len(titles), len(titles) + len(figures)))
    stopped = sum(row.stopped_early for row in rows)
    if stopped:
        click.echo(f"\n* {counted(stopped, 'row')} stopped early: a step took more than 1.5 times the best row's")


def _opened(rate: float | None) -> str:
    return "-" if rate is None else per_second(rate)


def _value(value: Value) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
