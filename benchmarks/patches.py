"""Patches beside pictures of the same size: what cutting costs, and how full packs are.

python -m benchmarks.patches PHOTOS [--folder DIR] [--rounds 7] [--threads 1]

The photos of the folder PHOTOS are packed, flipped at random, and resized to 576 patches of 16 pixels (NaFlex) or to at
most 448 x 448 pixels in blocks of 28 (Qwen). Batches are lists of photos of the commonest size, as many as have 16,384
patches, and the same for both loaders: one has pictures, the other their patches. Both give uint8 and take turns:
photos a second of CPU time, and patches' as a share of pictures' in the same round, median and range. How full packs
are is told for 100,000 photos with the sizes of all.
"""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader, PackSampler
from fastio.converters import open_source, pack
from fastio.transforms import Patchify, RandomHorizontalFlip, ResizeToTokens, SmartResize, patches_of
from fastio.transforms.transform import Transform

__all__ = ["main"]

_BUDGET = 16384  # patches of a batch
_BATCHES = 16  # of an epoch
_PLANNED = 100_000  # photos
_SECONDS = 2.0  # of CPU time a turn, at least

_NAFLEX: Transform = ResizeToTokens(576, 16)
_QWEN: Transform = SmartResize(28, max_pixels=448 * 448)
_PATCHES = {
    "NaFlex, padded": (_NAFLEX, Patchify(16, 576)),
    "NaFlex, packed": (_NAFLEX, Patchify(16, packed=True)),
    "Qwen, packed": (_QWEN, Patchify(14, order="qwen", packed=True)),
}


@click.command()
@click.argument("photos", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--folder", type=click.Path(path_type=Path), help="For the store.  [default: a temporary one]")
@click.option("--rounds", default=7, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(*, photos: Path, folder: Path | None, rounds: int, threads: int) -> None:
    """Print rates, their ratios, and how full packs are."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        store = Path(inside) / "photos.lmdb"
        pack(open_source(photos), store)
        with FastDataset(store) as dataset:
            click.echo(f"{platform.processor() or platform.machine()}, {len(dataset)} photos, {threads=}, {rounds=}\n")
            for name, (resize, patchify) in _PATCHES.items():
                _compare(name, dataset, resize, patchify, rounds, threads)


def _compare(name: str, dataset: FastDataset, resize: Transform, patchify: Patchify, rounds: int, threads: int) -> None:
    steps = [RandomHorizontalFlip(), resize]
    counts = patches_of(dataset.sizes(), [*steps, patchify])
    sizes, kinds, numbers = np.unique(dataset.sizes(), axis=0, return_inverse=True, return_counts=True)
    alike = np.flatnonzero(kinds.reshape(-1) == numbers.argmax())
    batch = max(_BUDGET // int(counts[alike[0]]), 1)
    batches = list(np.resize(alike, (_BATCHES, batch)))
    pictures = FastLoader(dataset, batch_sampler=batches, transforms=steps, threads=threads)
    patches = FastLoader(dataset, batch_sampler=batches, transforms=[*steps, patchify], threads=threads)
    with pictures, patches:
        for loader in (pictures, patches):
            _rate(loader)  # page cache, buffers
        rates = np.array([(_rate(pictures), _rate(patches)) for _ in range(rounds)])
    height, width = sizes[numbers.argmax()]
    click.echo(f"{name}: {len(alike)} photos of {height} x {width}, {counts[alike[0]]} patches each, {batch} a batch")
    click.echo(
        f"  pictures {_spread(rates[:, 0], ',.0f')}, patches {_spread(rates[:, 1], ',.0f')} a second of CPU time"
    )
    click.echo(f"  patches / pictures: {_spread(rates[:, 1] / rates[:, 0], '.3f')}")
    if patchify.packed:
        click.echo(f"  {PackSampler(np.resize(counts, _PLANNED), max_tokens=_BUDGET).report()}")


def _rate(loader: FastLoader) -> float:
    """Return the photos a second of CPU time of whole epochs."""
    photos, start = 0, time.process_time()
    while time.process_time() - start < _SECONDS:
        for _, labels in loader:
            photos += len(labels)
    return photos / (time.process_time() - start)


def _spread(values: NDArray[np.float64], form: str) -> str:
    return f"{np.median(values):{form}} ({values.min():{form}}-{values.max():{form}})"


if __name__ == "__main__":
    main()
