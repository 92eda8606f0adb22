"""
Every transform that torchvision has too, and a few recipes, by fastio's native threads and by torchvision v2.

    python -m benchmarks.trainings.transforms PHOTOS STORE [--scenes STORE] [--rounds 5]

``PHOTOS`` is a folder of class folders, ``STORE`` the same packed; ``--scenes`` has fields ``image`` and ``mask``.
Needs torchvision. One process with one thread of torch; the two sides of a row take turns, and the rounds of all rows
of a table are interleaved. CPU time is that of the process.

* recipes: photos, decoded, cropped and coloured into batches
* colours and moves alone: uint8 pictures in memory, by fastio in place as the threads that decode do it
* mixes alone: batches of pictures in memory, by tensors on both sides
* shapes and floats: uint8 pictures in memory made into batches, by FastLoader from a store of pixels, by torchvision
  one after the other and ``torch.stack``
* scenes: pictures and masks, decoded by fastio on both sides
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fastio.transforms as ours
from benchmarks.shuffle_training import pack
from fastio import FastDataset, FastLoader
from fastio.transforms.batch.batch_transform import Pictures
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
    "GaussianNoise()",
    "RandomChannelPermutation()",
    "RandomPhotometricDistort()",
    "RandAugment()",
    "TrivialAugmentWide()",
    "AutoAugment()",
    "AugMix()",
)

# Chains that make batches of one size; the sides of the pictures are STORED.
SHAPES = (
    "",  # reading and stacking alone
    "RandomResizedCrop(224)",
    "CenterCrop(224)",
    "RandomCrop(224)",
    "RandomCrop(256, padding=8)",
    "Resize(224)",
    "Pad(8)",
    "Grayscale(3)",
    "RandomHorizontalFlip(1.0)",
    "RandomResize(200, 250), CenterCrop(192)",
    "RandomShortestSize([200, 224]), CenterCrop(192)",
    "ScaleJitter((224, 224)), RandomCrop(224, pad_if_needed=True)",
    "RandomZoomOut(p=1.0), CenterCrop(224)",
    "ToDtype(torch.float32, scale=True)",
    "Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))",
)
MIXES = ("MixUp(num_classes=10)", "CutMix(num_classes=10)")  # torchvision's MixUp takes floats alone
WITH_MASKS = (
    "RandomCrop(256)",
    "RandomHorizontalFlip(1.0)",
    "RandomVerticalFlip(1.0)",
    "RandomRotation(30)",
    "RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5)",
    "RandomPerspective(0.5, 1.0)",
)
STORED = 256


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


def _made(code: str, library: Any) -> list[Any]:
    """The transforms of a chain, as a library has them."""
    from torchvision.transforms import InterpolationMode

    names = {name: getattr(library, name) for name in dir(library)} | {"torch": torch}
    if library is not ours:
        code = code.replace("'bilinear'", "InterpolationMode.BILINEAR")
        names["InterpolationMode"] = InterpolationMode
    return eval(f"[{code}]", names)  # type: ignore[no-any-return]


def _native(code: str, images: torch.Tensor) -> Run:
    (transform,) = _made(code, ours)
    numbers = np.random.default_rng(0).random((len(images), transform.draws))
    rows = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())  # as the threads that decode have them

    def run() -> int:
        paint(rows, program_for(transform, numbers, (SIDE, SIDE)))  # in place, again and again: its time stays the same
        return len(images)

    return run


def _theirs(code: str, images: torch.Tensor) -> Run:
    from torchvision.transforms import v2

    (transform,) = _made(code, v2)

    def run() -> int:
        for image in images:
            transform(image)
        return len(images)

    return run


def _our_mix(code: str, images: torch.Tensor, labels: torch.Tensor) -> Run:
    (mix,) = _made(code, ours)
    batches = [*zip(images.split(BATCH), labels.split(BATCH), strict=True)]
    rng = np.random.default_rng(0)

    def run() -> int:
        for some, classes in batches:
            numbers, size = rng.random((len(some), mix.draws)), (images.shape[2], images.shape[3])
            mix.run(Pictures(some, classes), mix.parameters(numbers, size))
        return len(images)

    return run


def _their_mix(code: str, images: torch.Tensor, labels: torch.Tensor) -> Run:
    from torchvision.transforms import v2

    (mix,) = _made(code, v2)
    batches = [*zip(images.split(BATCH), labels.split(BATCH), strict=True)]

    def run() -> int:
        for some, classes in batches:
            mix(some, classes)
        return len(images)

    return run


def _batches(code: str, store: Path) -> Run:
    dataset = FastDataset(store, verify=False)  # the other side reads no checksums
    loader = FastLoader(dataset, BATCH, threads=1, transforms=_made(code, ours))
    return lambda: sum(len(batch[0]) for batch in loader)


def _stacked(code: str, images: torch.Tensor) -> Run:
    from torchvision.transforms import v2

    chain = _made(code, v2)
    if "Normalize" in code:
        chain.insert(0, v2.ToDtype(torch.float32, scale=True))
    apply = v2.Compose(chain) if chain else lambda image: image

    def run() -> int:
        for some in images.split(BATCH):
            torch.stack([apply(image) for image in some])
        return len(images)

    return run


def _scenes(code: str, store: str) -> Run:
    dataset = FastDataset(store, fields=("image", "mask"))
    loader = FastLoader(dataset, 8, threads=1, transforms=_made(code, ours))
    return lambda: sum(len(batch[0]) for batch in loader)


def _their_scenes(code: str, store: str) -> Run:
    from torch.utils.data import DataLoader
    from torchvision.transforms import v2

    apply = v2.Compose([v2.ToImage(), *_made(code, v2)])
    dataset = FastDataset(store, apply, fields=("image", "mask"), tv_tensors=True)
    loader = DataLoader(dataset, 8)
    return lambda: sum(len(batch[0]) for batch in loader)


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
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos")
    parser.add_argument("store")
    parser.add_argument("--scenes")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    crops = FastLoader(arguments.store, BATCH, transforms=[ours.RandomResizedCrop(SIDE)])
    images = next(iter(crops))[0].contiguous()
    squares = FastLoader(arguments.store, BATCH, threads=1, transforms=[ours.RandomResizedCrop(STORED)])
    pixels = torch.cat([batch[0] for batch in squares]).contiguous()
    labels = torch.arange(len(pixels)) % 10
    alone = {code: (_native(code, images), _theirs(code, images)) for code in TRANSFORMS}
    for code, batch in zip(MIXES, (pixels / 255, pixels), strict=True):
        name = f"{code}, {batch.dtype}".replace("torch.", "")
        alone[f"{name}, {STORED} x {STORED}"] = _our_mix(code, batch, labels), _their_mix(code, batch, labels)
    with tempfile.TemporaryDirectory() as folder:
        raw = pack(Path(folder) / "raw.lmdb", pixels.permute(0, 2, 3, 1).contiguous().numpy(), labels.numpy())
        shapes = {code: (_batches(code, raw), _stacked(code, pixels)) for code in SHAPES}
        shaped = _measured(shapes, rounds=arguments.rounds)
    mine, plain = recipes(ours), recipes(v2)
    whole = {name: (_loader(arguments.store, mine[name]), _plain(arguments.photos, plain[name])) for name in mine}
    _show("Recipes, photos per CPU-second", "recipe", _measured(whole, rounds=arguments.rounds))
    _show(f"Transforms alone, {SIDE} x {SIDE}", "transform", _measured(alone, rounds=arguments.rounds))
    _show(f"Shapes and floats, from {STORED} x {STORED}", "transforms", shaped)
    if arguments.scenes is not None:
        scenes = {code: (_scenes(code, arguments.scenes), _their_scenes(code, arguments.scenes)) for code in WITH_MASKS}
        _show("Pictures and masks", "transform", _measured(scenes, rounds=arguments.rounds))


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
        table.add_row(name or "none", *(f"{rate:,.0f}" for rate in middle), *(f"{each:.2f}" for each in figures))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
