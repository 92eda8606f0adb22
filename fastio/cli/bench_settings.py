"""``fastio tune``, ``bench grid`` and ``bench decode``: settings side by side."""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from fastio.cli.options import remote_options, split_fields
from fastio.cli.result import html_option, show
from fastio.cli.screen import begun, steps
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.measure.settings.grid import GridRow
    from fastio.measure.settings.points import GridData, Point, Value
    from fastio.measure.settings.tune import Tuned
    from fastio.store.files.remote_options import Remote

__all__ = [
    "decode",
    "grid",
    "tune",
]


@click.command()
@click.argument("data")
@click.option(
    "--batch-size", type=click.IntRange(min=1), metavar="N", default=256, show_default=True, help="Samples per batch."
)
@click.option("--shuffle", is_flag=True, help="Shuffle, as in training.")
@click.option(
    "--crop", type=click.IntRange(min=1), metavar="N", help="Resize each picture and crop its centre to N pixels."
)
@click.option("--augment", is_flag=True, help="Flip pictures at random; with --crop, crop at random too.")
@click.option("--fields", metavar="NAME,...", help="Read only these fields of a store.  [default: all]")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 55),
    metavar="SECONDS",
    default=40,
    show_default=True,
    help="Time for the search.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
@html_option
def tune(  # noqa: PLR0913 - one argument an option
    data: str,
    *,
    batch_size: int,
    shuffle: bool,
    crop: int | None,
    augment: bool,
    fields: str | None,
    seconds: float,
    as_json: bool,
    remote: Remote,
) -> None:
    """
    Find the settings with which DATA loads fastest here. Prints the line of code to paste.

    DATA is a store (tunes FastLoader), a folder of pictures, or MODULE:FUNCTION that returns a map-style dataset
    (both tune torch's DataLoader). Only the CPUs that affinity, cgroup and SLURM allow are used, and prefetched
    batches take at most a quarter of the free memory. Among settings within 3% of the best, the cheapest wins.

    \b
    Example:
      fastio tune photos.lmdb --shuffle --crop 224 --augment
      fastio tune train.py:make_dataset --batch-size 128
    """
    from fastio.measure.loop.data import DataOptions
    from fastio.measure.report.settings import tune_page
    from fastio.measure.settings.points import GridData
    from fastio.measure.settings.tune import candidates
    from fastio.measure.settings.tune import tune as run

    names = split_fields(fields)
    options = DataOptions(
        batch_size=batch_size, shuffle=shuffle, crop=crop, augment=augment, fields=names, remote=remote
    )
    grid_data = GridData(data, options)
    points = candidates(grid_data)
    try:
        with steps("trying") as progress:
            tuned = run(grid_data, points, seconds=seconds, progress=progress)
    finally:
        grid_data.close()
    show("tune", _tuned_as_dict(data, tuned), tune_page, as_json=as_json)


def _tuned_as_dict(data: str, tuned: Tuned) -> dict[str, object]:
    tried = [
        {"settings": dict(tried.point.settings), "samples_per_s": tried.samples_per_s, "rounds": tried.rounds}
        for tried in tuned.tried
    ]
    return {
        "data": data,
        "code": tuned.code,
        "settings": dict(tuned.point.settings),
        "samples_per_s": tuned.samples_per_s,
        "seconds": tuned.seconds,
        "is_complete": tuned.is_complete,
        "tried": tried,
    }


# ``fastio bench grid``: loading and training time for each setting of a loader.


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
    "--rounds", type=click.IntRange(min=1), metavar="N", default=3, show_default=True, help="Interleaved rounds."
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
    rounds: int,
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
    from fastio.measure.report.settings import grid_page
    from fastio.measure.settings.grid import run_grid
    from fastio.measure.settings.points import GridData

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
                repeats=rounds,
                seconds=seconds,
                step=lambda _: time.sleep(step_ms / 1e3) if step_ms else None,
                progress=progress,
            )
    kinds = {grid_data.name: grid_data.kind for grid_data, _ in points}
    report = {
        "step_ms": step_ms,
        "seconds": seconds,
        "rows": [_grid_as_dict(row, kinds[row.point.data]) for row in rows],
    }
    show("bench.grid", report, grid_page, as_json=as_json)


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


def _grid_as_dict(row: GridRow, kind: str) -> dict[str, object]:
    from fastio.measure.loop.data import opens_per_s

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


# ``fastio bench decode``: compares decoders on the user's own pictures.


@click.command()
@click.argument("data")
@click.option(
    "--crop", type=click.IntRange(min=1), metavar="N", help="Also resize each picture and crop its centre to N pixels."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=200,
    show_default=True,
    help="How many pictures, spread evenly over DATA.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), metavar="N", default=3, show_default=True, help="Interleaved rounds."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
@html_option
def decode(data: str, *, crop: int | None, count: int, rounds: int, as_json: bool, remote: Remote) -> None:
    """
    Compare Pillow, OpenCV and fastio at decoding DATA. DATA is a store or a folder of pictures.

    Prints images per CPU-second of one thread, and how far the pixels differ from Pillow's (of 255). Pillow-SIMD is
    used if it is installed. With --crop, fastio decodes only what the crop needs, and its fast mode is listed next to
    the exact one.

    \b
    Example:
      fastio bench decode photos.lmdb --crop 224
      fastio bench decode ./pngs --json
    """
    from fastio.measure.report.settings import decode_page
    from fastio.measure.settings.decode import compare_decoders, sample_pictures

    pictures = sample_pictures(data, count, remote)
    work = f"{counted(len(pictures), 'picture')} by each library, {counted(rounds, 'round')}"
    begun(f"decoding {work}")
    rates = compare_decoders(pictures, crop=crop, rounds=rounds)
    about = {"data": data, "pictures": len(pictures), "crop": crop, "rounds": rounds}
    report = {**about, "decoders": [dataclasses.asdict(rate) for rate in rates]}
    show("bench.decode", report, decode_page, as_json=as_json)
