"""
Input pipelines of whole trainings, by fastio and by what people write for them: ``python -m benchmarks.trainings.run``.

Every run is a fresh process with one thread and no workers; rounds of all trainings are interleaved. Rates are samples
per CPU-second. This Python needs torchvision (timm and transformers, if they are to take part); other loaders get
environments of their own (see ``benchmarks/peers``). Photos and scenes are made from a seed unless folders are given;
videos and boxes are made from the photos.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from benchmarks.fields.scenes import make_scenes
from benchmarks.rounds import CaseError, Results
from benchmarks.side_by_side import Comparison
from benchmarks.synthetic import make_photos
from benchmarks.trainings.work import FRAMES, STRIDE, TRAININGS, Work, photos_of, to_json

__all__ = ["main"]

_DATA = Path(__file__).parent.parent / ".data"
_MEAN_TOLERANCE = 8.0  # levels of 255 from the plain loader's mean; timm's RandAugment has operations of its own

# Name in the table: its file in ``loaders``, and its environment in ``benchmarks/peers``; "" is this one.
LOADERS = {
    "fastio": ("native", ""),
    "plain": ("plain", ""),
    "plain, colours of tensors": ("plain", ""),
    "timm": ("timm_loader", ""),
    "transformers": ("qwen_processor", ""),
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
    "naflex": (*_EVERY, "timm"),
    "pictured": ("fastio", "transformers"),
    "segmentation": (*_EVERY, "DALI"),
    "rotation": (*_EVERY, "DALI"),
    "mosaic": _EVERY,
    "clips": (*_EVERY, "DALI"),
    "mix": (*_EVERY, "timm"),
    "repeats": (*_EVERY, "timm", "DALI", "SPDL", "FFCV"),
}
_VIEWS = ("dinov2-crops", "dinov2", "simclr", "simclr-colours")
_FIELDS = ("segmentation", "rotation", "mosaic")
_NO_TEXT = "packs no text"
ABSENT: dict[str, dict[str, str]] = {
    "timm": {
        **dict.fromkeys(_VIEWS, "makes one view of a photo"),
        **dict.fromkeys(_FIELDS, "has no masks or boxes"),
        "buckets": "makes batches of one size",
        "clips": "reads single pictures",
        "pictured": _NO_TEXT,
    },
    "transformers": dict.fromkeys(set(CASES) - {"pictured"}, "its processors prepare inputs of its models"),
    "DALI": {
        "buckets": "its readers take no order by shape",
        "naflex": "cuts no patches",
        "mosaic": "has no operator that moves boxes into a mosaic",
        "mix": "has no CutMix",
        "pictured": _NO_TEXT,
    },
    "SPDL": {
        **dict.fromkeys(("dinov2", "simclr-colours", "randaugment"), "FFmpeg's filters are other colours"),
        **dict.fromkeys(_FIELDS, "leaves masks and boxes to the user"),
        **dict.fromkeys(("buckets", "naflex", "pictured", "clips", "mix"), "leaves it to the user"),
    },
    "FFCV": {
        **dict.fromkeys(_VIEWS, "has one pipeline a field"),
        **dict.fromkeys(_FIELDS, "has no masks or boxes"),
        **dict.fromkeys(("buckets", "naflex", "clips"), "makes batches of single pictures of one size"),
        "randaugment": "has no RandAugment",
        "mix": "has no CutMix",
        "pictured": _NO_TEXT,
    },
    "datago": dict.fromkeys(set(CASES) - {"buckets"}, "resizes to buckets only"),
}


COMPARISON = Comparison("benchmarks.trainings", LOADERS, CASES, ABSENT)
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for what OpenMP or OpenCV would spread


def _packed(work: Work, chosen: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Let every loader with a format pack; returned are the cases that cannot be run, and why."""
    failed: dict[str, str] = {}
    for name in _PACKS:
        mine = [f"{training}: {name}" for training, names in chosen.items() if name in names]
        try:
            if mine:
                COMPARISON.run(name, "pack", to_json(work), variables=_ONE_THREAD)
        except CaseError as exc:
            failed |= dict.fromkeys(mine, f"packing: {exc}")
    return failed


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
    chosen = {
        training: names
        for training in trainings or CASES
        if (names := [name for name in CASES[training] if not only or name in only])
    }

    def measure(training: str, name: str) -> dict[str, Any]:
        arguments = (training, name, to_json(work), str(seconds))
        return COMPARISON.run(name, "load", *arguments, variables=_ONE_THREAD)

    results = COMPARISON.rounds(measure, chosen=chosen, failed=_packed(work, chosen), rounds=rounds)
    _checked(results)
    for training in chosen:
        click.echo(f"\n{COMPARISON.table(training, TRAININGS[training], results)}")
    if keep:
        settings = {"rounds": rounds, "seconds": seconds, "limit": limit, "batch_size": batch_size}
        click.echo(f"\nall runs: {COMPARISON.keep(results, 'trainings', *trainings, *only, settings=settings)}")


if __name__ == "__main__":
    main()
