"""How far FastLoader's pixels are from Pillow's (whole picture decoded, then cropped and resized), as a table.

python -m benchmarks.accuracy FOLDER [--size 224] [--limit 300]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fastio import FastDataset, FastLoader
from fastio.converters import open_source, pack
from fastio.transforms import CenterCrop, Compose, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform
from fastio.transforms.fused import uniform

__all__ = ["main"]

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass
class Error:
    """Differences in levels of 255, over all pixels of all pictures."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    squares: list[float] = field(default_factory=list)  # the mean square of each picture

    def add(self, expected: NDArray[np.uint8], found: NDArray[np.uint8]) -> None:
        """Count one picture."""
        error = np.abs(expected.astype(np.int64) - found)
        self.counts += np.bincount(error.ravel(), minlength=256)
        self.squares.append(float((error**2).mean()))

    def cells(self) -> Iterator[str]:
        """Pictures that differ, mean, 99 % quantile, largest, and the ratio of the worst picture in dB."""
        share = self.counts / self.counts.sum()
        worst = max(self.squares)
        yield f"{np.count_nonzero(self.squares)} of {len(self.squares)}"
        yield f"{share @ np.arange(256):.3f}"
        yield str(int(np.searchsorted(share.cumsum(), 0.99)))
        yield str(int(np.flatnonzero(self.counts)[-1]))
        yield f"{10 * np.log10(255**2 / worst):.1f}" if worst else "equal"


def measure(
    dataset: FastDataset, transforms: list[Transform], *, quality: Literal["exact", "fast"], limit: int
) -> Error:
    """The first epoch in order, against Pillow by the same random numbers."""
    chain, error = Compose(transforms), Error()
    with FastLoader(dataset, 1, transforms=transforms, quality=quality) as loader:
        for index, (images, _) in enumerate(islice(loader, limit)):
            numbers = uniform(np.array([index]), chain.draws, seed=0, epoch=0)[0]
            expected = np.asarray(chain.apply(dataset[index][0], numbers))
            error.add(expected, images[0].permute(1, 2, 0).numpy())
    return error


@click.command()
@click.argument("folder", type=_FOLDER)
@click.option("--size", default=224, show_default=True, help="Side of the crops in pixels.")
@click.option("--limit", default=300, show_default=True, help="So many pictures at most.")
def main(folder: Path, size: int, limit: int) -> None:
    """Compare the pictures of FOLDER, which has a folder for each class."""
    recipes: dict[str, list[Transform]] = {
        f"RandomResizedCrop({size}) + flip": [RandomResizedCrop(size), RandomHorizontalFlip()],
        f"Resize({size * 8 // 7}) + CenterCrop({size})": [Resize(size * 8 // 7), CenterCrop(size)],
    }
    table = Table(title="difference from Pillow, in levels of 255")
    for heading in ("recipe", "quality", "pictures that differ", "mean", "p99", "max", "PSNR of the worst, dB"):
        table.add_column(heading, justify="left" if heading in ("recipe", "quality") else "right")
    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "pictures.lmdb"
        pack(open_source(folder), store)
        with FastDataset(store) as dataset:
            for recipe, transforms in recipes.items():
                for quality in ("exact", "fast"):
                    table.add_row(recipe, quality, *measure(dataset, transforms, quality=quality, limit=limit).cells())
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)


if __name__ == "__main__":
    main()
