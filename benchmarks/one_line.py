"""An unchanged script over files and over a store: CPU time a photo, ``python -m benchmarks.one_line [FOLDER]``.

The same Pillow transforms, which call what torchvision's call, in the same ``torch.utils.data.DataLoader``; only the
dataset differs: files opened by Pillow, FastDataset of the folder in place, the same with ``jump=True`` once all start
points are noted, FastDataset of the packed store. Rounds are interleaved, and a ratio is that of one round. CPU time is
that of the process and its workers, with one torch thread; each epoch goes over the photos ``--passes`` times, so that
starting workers weighs little. The first samples of all are compared: they must be equal to the bit. FOLDER holds
photos in class folders, of which ``fastio index`` has noted nothing; without one, 300 are made from a seed.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.files_pil import center_224, random_224
from benchmarks.peers.normalize import to_floats
from benchmarks.process_tree import cpu_seconds
from benchmarks.synthetic import make_photos
from fastio import FastDataset
from fastio.converters import open_source, pack

__all__ = ["main"]

Transform = Callable[[Image.Image], torch.Tensor]

CROPS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "RandomResizedCrop(224), flip": random_224,
    "Resize(256), CenterCrop(224)": center_224,
}
_COMPARED = 32
_BATCH_SIZE = 32
_WIDTH = 160  # columns of the table


class Files(Dataset[Any]):
    """What torchvision's ImageFolder is: one file a sample, opened and converted by Pillow."""

    def __init__(self, paths: list[Path], transform: Transform) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as file:
            return self.transform(file.convert("RGB")), 0


def as_bytes(crop: Callable[[Image.Image], Image.Image], picture: Image.Image) -> torch.Tensor:
    """The crop and PILToTensor: uint8, to be normalised on the device."""
    return torch.from_numpy(np.array(crop(picture))).permute(2, 0, 1)


def as_floats(crop: Callable[[Image.Image], Image.Image], picture: Image.Image) -> torch.Tensor:
    """The crop, ToTensor and Normalize."""
    return to_floats(np.array(crop(picture), np.uint8, copy=True))


TENSORS = {"uint8": as_bytes, "ToTensor, Normalize": as_floats}


def _epoch(dataset: Dataset[Any], count: int, *, workers: int, passes: int, seed: int) -> float:
    """Microseconds of CPU a photo."""
    random.seed(seed)
    order = [index % count for index in range(count * passes)]
    loader = DataLoader(dataset, _BATCH_SIZE, sampler=order, num_workers=workers)
    begun = cpu_seconds()
    for _ in loader:
        pass
    del loader
    return (cpu_seconds() - begun) / len(order) * 1e6


def _check(datasets: Sequence[Dataset[Any]]) -> None:
    """The same random numbers give the same samples."""
    found = []
    for dataset in datasets:
        random.seed(0)
        found.append([dataset[index][0] for index in range(_COMPARED)])
    for index, samples in enumerate(zip(*found, strict=True)):
        assert all(torch.equal(samples[0], each) for each in samples), f"photo {index} is not what the file holds"


def _measure(
    datasets: Sequence[Dataset[Any]], count: int, *, workers: int, passes: int, rounds: int
) -> list[list[float]]:
    """CPU time a photo from each, a round each."""
    _check(datasets)
    return [
        [_epoch(each, count, workers=workers, passes=passes, seed=number) for each in datasets]
        for number in range(rounds)
    ]


def _gain(before: Sequence[float], after: Sequence[float]) -> str:
    ratios = [old / new for old, new in zip(before, after, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--rounds", default=7, show_default=True, help="Interleaved rounds.")
@click.option("--passes", default=6, show_default=True, help="Times that an epoch goes over the photos.")
def main(folder: Path | None, rounds: int, passes: int) -> None:
    """Pack, compare, measure, print."""
    torch.set_num_threads(1)
    kinds = ("files", "in place", "in place, jump", "store")
    times = [f"{each}, us" for each in kinds]
    gains = [f"files / {each}" for each in kinds[1:]]
    table = Table("crop", "tensor", "workers", *times, *gains, title="CPU time a photo")
    with tempfile.TemporaryDirectory() as scratch:
        photos = folder or make_photos(Path(scratch) / "photos")
        packed = Path(scratch) / "photos.lmdb"
        pack(open_source(photos), packed)
        keys = FastDataset(packed).keys
        for picture, _ in FastDataset(photos, jump=True):
            picture.load()
        for name, crop in CROPS.items():
            for kind, tensor in TENSORS.items():
                transform = partial(tensor, crop)
                files = Files([photos / key for key in keys], transform)
                places = [FastDataset(photos, transform), FastDataset(photos, transform, jump=True)]
                datasets = (files, *places, FastDataset(packed, transform))
                for workers in (0, 2):
                    runs = _measure(datasets, len(keys), workers=workers, passes=passes, rounds=rounds)
                    of_files, *others = zip(*runs, strict=True)
                    costs = [f"{statistics.median(each):,.0f}" for each in (of_files, *others)]
                    table.add_row(name, kind, str(workers), *costs, *(_gain(of_files, each) for each in others))
    Console(width=_WIDTH).print(table)


if __name__ == "__main__":
    main()
