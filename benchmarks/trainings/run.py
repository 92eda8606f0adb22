"""
Input pipelines of whole trainings, by fastio and by what people write for them: ``python -m benchmarks.trainings.run``.

Every run is a fresh process with one thread and no workers; rounds of all trainings are interleaved. Rates are samples
per CPU-second. This Python needs torchvision (and timm, if it is to take part); other loaders get environments of
their own (see ``benchmarks/peers``). Photos and scenes are made from a seed unless folders are given; videos and boxes
are made from the photos.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.fields.scenes import make_scenes
from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.rounds import CaseError, Results, interleaved, run_process
from benchmarks.synthetic import make_photos
from benchmarks.trainings.work import FRAMES, STRIDE, TRAININGS, Work, photos_of, to_json

__all__ = ["main"]

_DATA = Path(__file__).parent.parent / ".data"
_RESULTS = Path(__file__).parent.parent / "results"
_MEAN_TOLERANCE = 8.0  # levels of 255 from the plain loader's mean; timm's RandAugment has operations of its own

# Name in the table: its file in ``loaders``, and its environment in ``benchmarks/peers``; "" is this one.
LOADERS = {
    "fastio": ("native", ""),
    "plain": ("plain", ""),
    "plain, colours of tensors": ("plain", ""),
    "timm": ("timm_loader", ""),
    "DALI": ("dali_cpu", "dali"),
    "SPDL": ("spdl_files", "spdl"),
    "FFCV": ("ffcv_beton", "ffcv"),
    "datago": ("datago_files", "datago"),
}
_PACKS = ("fastio", "FFCV")

# What takes part, and for the others why not.
_EVERY = ("fastio", "plain")
_COLOURS = (*_EVERY, "plain, colours of tensors")
CASES: dict[str, Sequence[str]] = {
    "dinov2-crops": (*_EVERY, "DALI", "SPDL"),
    "dinov2": (*_COLOURS, "DALI"),
    "simclr": (*_EVERY, "DALI", "SPDL"),
    "simclr-colours": (*_COLOURS, "DALI"),
    "randaugment": (*_COLOURS, "timm", "DALI"),
    "buckets": (*_EVERY, "datago"),
    "segmentation": (*_EVERY, "DALI"),
    "rotation": (*_EVERY, "DALI"),
    "mosaic": _EVERY,
    "clips": (*_EVERY, "DALI"),
    "mix": (*_EVERY, "timm"),
    "repeats": (*_EVERY, "timm", "DALI", "SPDL", "FFCV"),
}
_VIEWS = ("dinov2-crops", "dinov2", "simclr", "simclr-colours")
_FIELDS = ("segmentation", "rotation", "mosaic")
ABSENT: dict[str, dict[str, str]] = {
    "timm": {
        **dict.fromkeys(_VIEWS, "makes one view of a photo"),
        **dict.fromkeys(_FIELDS, "has no masks or boxes"),
        "buckets": "makes batches of one size",
        "clips": "reads single pictures",
    },
    "DALI": {
        "buckets": "its readers take no order by shape",
        "mosaic": "has no operator that moves boxes into a mosaic",
        "mix": "has no CutMix",
    },
    "SPDL": {
        **dict.fromkeys(("dinov2", "simclr-colours", "randaugment"), "FFmpeg's filters are other colours"),
        **dict.fromkeys(_FIELDS, "leaves masks and boxes to the user"),
        **dict.fromkeys(("buckets", "clips", "mix"), "leaves it to the user"),
    },
    "FFCV": {
        **dict.fromkeys(_VIEWS, "has one pipeline a field"),
        **dict.fromkeys(_FIELDS, "has no masks or boxes"),
        **dict.fromkeys(("buckets", "clips"), "makes batches of single pictures of one size"),
        "randaugment": "has no RandAugment",
        "mix": "has no CutMix",
    },
    "datago": dict.fromkeys(set(CASES) - {"buckets"}, "resizes to buckets only"),
}


def _command(name: str, *arguments: str) -> list[str | Path]:
    module, environment = LOADERS[name]
    return [interpreter(environment), "-m", "benchmarks.trainings.measure", arguments[0], module, *arguments[1:]]


def _variables(name: str) -> Mapping[str, str]:
    """One thread for what OpenMP or OpenCV would spread; a home of its own for what is not ours."""
    home = process_environment(LOADERS[name][1]) if LOADERS[name][1] else {}
    return {**home, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def _measure(work: Work, case: str, *, seconds: float) -> dict[str, Any]:
    training, _, name = case.partition(": ")
    command = _command(name, "load", training, name, to_json(work), str(seconds))
    return run_process(command, environment=_variables(name))


def _pack(work: Work, name: str) -> None:
    run_process(_command(name, "pack", to_json(work)), environment=_variables(name))


def _prepared(photos: Path, scenes: Path, limit: int, batch_size: int) -> Work:
    """Copies of the photos, evenly chosen, videos and boxes made from them."""
    folder = _DATA / "trainings"
    shutil.rmtree(folder, ignore_errors=True)
    work = Work(*(folder / name for name in ("photos", "scenes", "videos", "boxes.json", "packed")), batch_size, 0)
    paths = sorted(path for path in photos.rglob("*") if path.is_file())
    for number in np.linspace(0, len(paths) - 1, min(limit, len(paths))).round().astype(int).tolist():
        target = work.photos / paths[number].relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths[number], target)
    shutil.copytree(scenes, work.scenes)
    work.packed.mkdir()
    _make_videos(work)
    rng = np.random.default_rng(0)
    work.boxes.write_text(
        json.dumps({path.relative_to(work.photos).as_posix(): _boxes(path, rng) for path, _ in photos_of(work)})
    )
    return work


def _make_videos(work: Work, count: int = 20, frames: int = 20) -> None:
    """A window that moves over a photo, as JPEGs of 320 x 240."""
    for video, (path, _) in enumerate(photos_of(work)[:count]):
        with Image.open(path) as file:
            photo = file.convert("RGB").resize((400, 300))
        folder = work.videos / f"video_{video:02d}"
        folder.mkdir(parents=True)
        for frame in range(frames):
            left, top = 80 * frame // frames, 60 * frame // frames
            photo.crop((left, top, left + 320, top + 240)).save(folder / f"{frame:03d}.jpg", quality=90)
    assert frames > (FRAMES - 1) * STRIDE


def _boxes(path: Path, rng: np.random.Generator) -> list[list[float]]:
    """Two to five boxes of a tenth to a half of each side."""
    with Image.open(path) as file:
        size = np.array(file.size)
    count = rng.integers(2, 6)
    sides = rng.uniform(0.1, 0.5, (count, 2)) * size
    corners = rng.uniform(0, 1, (count, 2)) * (size - sides)
    return np.concatenate([corners, corners + sides], 1).round(1).tolist()


def _checked(results: Results) -> None:
    """Keep no loader whose pictures differ from the plain loader's on average."""
    for case in list(results.runs):
        plain = results.runs.get(f"{case.partition(': ')[0]}: plain")
        if not plain:
            continue
        mean, expected = (statistics.fmean(run["mean"] for run in runs) for runs in (results.runs[case], plain))
        if abs(mean - expected) > _MEAN_TOLERANCE and "timm" not in case:
            del results.runs[case]
            results.failed[case] = f"the mean of all pixels is {mean:.1f}, the plain loader's {expected:.1f}"


def _table(training: str, results: Results) -> Table:
    """Medians and spread, and fastio's rate over each other's by rounds."""
    spec = TRAININGS[training]
    table = Table("loader", f"{spec.unit} per CPU-second", "fastio is", title=spec.title, width=110)
    rates = {name: _rates(results.runs.get(f"{training}: {name}", [])) for name in CASES[training]}
    for name, cpu in rates.items():
        if not cpu:
            table.add_row(name, results.failed.get(f"{training}: {name}", "not measured"), "")
            continue
        gain = ""
        if name != "fastio" and rates["fastio"]:
            ratios = [ours / theirs for ours, theirs in zip(rates["fastio"], cpu, strict=True)]
            gain = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(name, f"{statistics.median(cpu):,.0f} ({min(cpu):,.0f}-{max(cpu):,.0f})", gain)
    for name, reasons in ABSENT.items():
        if training in reasons:
            table.add_row(name, reasons[training], "")
    return table


def _rates(runs: list[dict[str, Any]]) -> list[float]:
    return [run["samples"] / run["cpu_s"] for run in runs]


def _versions() -> dict[str, Any]:
    """What was measured, by environment."""
    names = ("fastio", "torch", "torchvision", "timm", "pillow", "numpy")
    found = {distribution.name.lower() for distribution in importlib.metadata.distributions()}
    here = [f"{name}=={importlib.metadata.version(name)}" for name in names if name in found]
    return {"this one": here} | {name: versions(name) for _, name in LOADERS.values() if name}


@click.command(help=__doc__)
@click.option("--photos", type=click.Path(exists=True, path_type=Path), help="JPEGs in class folders.")
@click.option("--scenes", type=click.Path(exists=True, path_type=Path), help="images/, masks/ and metadata.jsonl.")
@click.option("--limit", default=150, show_default=True, help="So many of the photos.")
@click.option("--batch-size", default=50, show_default=True, help="Photos a batch; DALI gives whole batches alone.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=1.0, show_default=True, help="Seconds of each run after its first epoch.")
@click.option("--training", "trainings", multiple=True, type=click.Choice(list(CASES)), help="Only this; repeatable.")
@click.option("--only", multiple=True, type=click.Choice(list(LOADERS)), help="Only this loader; repeatable.")
@click.option("--keep/--no-keep", default=True, show_default=True, help="Write all runs into benchmarks/results.")
def main(  # noqa: PLR0913, PLR0917 - click passes one for each option
    photos: Path | None, scenes: Path | None, limit: int, batch_size: int, rounds: int, seconds: float,
    trainings: Sequence[str], only: Sequence[str], keep: bool,
) -> None:  # fmt: skip
    """Pack, measure, print, and keep all runs."""
    _DATA.mkdir(exist_ok=True)
    work = _prepared(
        photos or make_photos(_DATA / "photos"), scenes or make_scenes(_DATA / "scenes"), limit, batch_size
    )
    chosen = {name: [other for other in CASES[name] if not only or other in only] for name in trainings or CASES}
    failed = {}
    for name in _PACKS:
        try:
            if any(name in names for names in chosen.values()):
                _pack(work, name)
        except CaseError as exc:
            failed[name] = f"packing: {exc}"
    cases = [f"{training}: {name}" for training, names in chosen.items() for name in names if name not in failed]
    results = interleaved(cases, partial(_measure, work, seconds=seconds), rounds=rounds)
    results.failed |= {f"{training}: {name}": why for name, why in failed.items() for training in chosen}
    _checked(results)
    console = Console(width=120)
    for training in chosen:
        console.print(_table(training, results))
    if not keep:
        return
    machine = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    kept = {**machine, "versions": _versions(), "runs": results.runs, "failed": results.failed}
    file = _RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{platform.node()}-trainings.json"
    file.write_text(json.dumps(kept, indent=1) + "\n")
    console.print(f"all runs: {file}")


if __name__ == "__main__":
    main()
