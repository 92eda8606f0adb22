"""
Every transform of colours and moves, and a few recipes, by fastio's native threads and by torchvision v2.

    python -m benchmarks.trainings.transforms PHOTOS STORE [--rounds 5]

``PHOTOS`` is a folder of class folders, ``STORE`` the same packed. Needs torchvision. One process with one thread of
torch; the two sides of a row take turns, and the rounds of all rows are interleaved. CPU time is that of the process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fastio.transforms as ours
from fastio import FastLoader
from fastio.transforms.batch.program import program_for
from fastio.transforms.program import paint

__all__ = ["TRANSFORMS", "recipes"]

SIDE, BATCH = 224, 50

# As both write it; what is drawn with a probability is always done.
TRANSFORMS = (
    "ColorJitter(0.4)",
    "ColorJitter(0, 0.4)",
    "ColorJitter(0, 0, 0.4)",
    "ColorJitter(0, 0, 0, 0.1)",
    "ColorJitter(0.4, 0.4, 0.4, 0.1)",
    "RandomGrayscale(1.0)",
    "RandomInvert(1.0)",
    "RandomSolarize(128, 1.0)",
    "RandomPosterize(4, 1.0)",
    "RandomAutocontrast(1.0)",
    "RandomEqualize(1.0)",
    "RandomAdjustSharpness(2.0, 1.0)",
    "GaussianBlur(5)",
    "GaussianBlur(23)",
    "RandomErasing(1.0)",
    "RandomVerticalFlip(1.0)",
    "RandomRotation(30)",
    "RandomRotation(30, 'bilinear')",
    "RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5)",
    "RandomPerspective(0.5, 1.0)",
    "RandAugment()",
    "TrivialAugmentWide()",
    "AutoAugment()",
    "AugMix()",
)


def recipes(v: Any) -> dict[str, list[Any]]:
    """What follows crop and flip, in the words of a library's transforms."""
    jitter, normal = v.ColorJitter(0.4, 0.4, 0.4, 0.1), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    simclr = [v.RandomApply([jitter], p=0.8), v.RandomGrayscale(0.2)]
    floats = [] if v is ours else [v.ToDtype(torch.float32, scale=True)]
    return {
        "crop and flip": [],
        "... ColorJitter(0.4, 0.4, 0.4)": [v.ColorJitter(0.4, 0.4, 0.4)],
        "... with hue": [jitter],
        "... RandAugment": [v.RandAugment()],
        "SimCLR without blur": simclr,
        "SimCLR": [*simclr, v.RandomApply([v.GaussianBlur(23)], p=0.5), *floats, v.Normalize(*normal)],
    }


Run = Callable[[], int]  # does some pictures, and returns how many


def _native(code: str, images: torch.Tensor) -> Run:
    transform: Any = eval(code, vars(ours) | {name: getattr(ours, name) for name in ours.__all__})
    numbers = np.random.default_rng(0).random((len(images), transform.draws))
    rows = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())  # as the threads that decode have them

    def run() -> int:
        paint(rows, program_for(transform, numbers, (SIDE, SIDE)))  # in place, again and again: its time stays the same
        return len(images)

    return run


def _theirs(code: str, images: torch.Tensor) -> Run:
    from torchvision.transforms import InterpolationMode, v2

    code = code.replace("'bilinear'", "InterpolationMode.BILINEAR")
    transform: Any = eval(code, vars(v2) | {"InterpolationMode": InterpolationMode})

    def run() -> int:
        for image in images:
            transform(image)
        return len(images)

    return run


def _loader(store: str, steps: list[Any]) -> Run:
    crop = [ours.RandomResizedCrop(SIDE), ours.RandomHorizontalFlip()]
    loader = FastLoader(store, BATCH, shuffle=True, threads=1, transforms=[*crop, *steps])
    return lambda: sum(len(batch[0]) for batch in loader)


def _plain(photos: str, steps: list[Any]) -> Run:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    chain = v2.Compose([v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip(), v2.PILToTensor(), *steps])
    loader = DataLoader(ImageFolder(photos, chain), BATCH, shuffle=True)
    return lambda: sum(len(batch[0]) for batch in loader)


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos")
    parser.add_argument("store")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    crops = FastLoader(arguments.store, BATCH, transforms=[ours.RandomResizedCrop(SIDE)])
    images = next(iter(crops))[0].contiguous()
    alone = {code: (_native(code, images), _theirs(code, images)) for code in TRANSFORMS}
    mine, plain = recipes(ours), recipes(v2)
    whole = {name: (_loader(arguments.store, mine[name]), _plain(arguments.photos, plain[name])) for name in mine}
    _show("Recipes, photos per CPU-second", "recipe", _measured(whole, rounds=arguments.rounds))
    _show(f"Transforms alone, {SIDE} x {SIDE}", "transform", _measured(alone, rounds=arguments.rounds))


def _measured(rows: dict[str, tuple[Run, Run]], *, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return pictures per CPU-second of both sides, for every round; one more before them is not counted."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for number in track(range(rounds + 1), console=Console(stderr=True)):
        for name, (first, second) in rows.items():
            pair = _rate(first), _rate(second)
            if number:
                rates[name].append(pair)
    return rates


def _rate(run: Run) -> float:
    begin = time.process_time()
    count = run()
    return count / (time.process_time() - begin)


def _show(title: str, what: str, rates: dict[str, list[tuple[float, float]]]) -> None:
    table = Table(title=title)
    for column in (what, "fastio", "torchvision", "times", "from", "to"):
        table.add_column(column, justify="left" if column == what else "right")
    for name, pairs in rates.items():
        middle = [statistics.median(side) for side in zip(*pairs, strict=True)]
        times = sorted(first / second for first, second in pairs)
        figures = (statistics.median(times), times[0], times[-1])
        table.add_row(name, *(f"{rate:,.0f}" for rate in middle), *(f"{each:.2f}" for each in figures))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
