"""Train a small network on a class-sorted store in several orders: test accuracy, and how classes come.

python -m benchmarks.shuffle_training [--pngs DIR --labels labels.pkl] [--seeds 5] [--epochs 1] [--memory 5MB]

The pictures (made ones by default; real ones are a flat folder of PNGs of one size and a pickle of labels) are packed
sorted by class, every fifth is kept for the test. Each seed trains the same network once in each order:

* DataLoader: torch's, shuffle=True, over the same FastDataset
* full: shuffle="full"
* held: shuffle=True, where memory holds the store
* lanes: shuffle=True with ``--memory``, which does not hold it
* blocks: what shuffle=True was before there were lanes, in a window of an eighth of the store
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.synthetic import natural_images
from fastio import FastDataset, FastLoader
from fastio.samplers.batches import Batches
from fastio.samplers.choice import Classes
from fastio.samplers.order import block_order
from fastio.store import SampleBatch, create_store
from fastio.types.schema import COLUMN, RAW, Field, Schema
from fastio.types.spans import Spans

__all__ = ["main"]

_TESTED = 5  # every fifth sample
_BATCH = 64
_FILE = click.Path(exists=True, path_type=Path)


class Blocks:
    """A batch_sampler: the block shuffle, with blocks that are to this store what 4 MiB are to one of 64 blocks."""

    rank, world_size = 0, 1

    def __init__(self, sizes: NDArray[np.int64], seed: int) -> None:
        self._sizes, self._seed = sizes, seed

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        return -(-len(self._sizes) // _BATCH)

    def plan(self, epoch: int) -> Batches:
        """The batches of an epoch."""
        block_bytes = max(1, int(self._sizes.sum()) // 64)
        order = block_order(self._sizes, seed=self._seed, epoch=epoch, block_bytes=block_bytes)
        cuts = np.minimum(np.arange(self.count(epoch) + 1) * _BATCH, len(order))
        return Batches(order, cuts)

    def configuration(self) -> dict[str, Any]:
        """What names the order."""
        return {"samples": len(self._sizes), "seed": self._seed}


def made_pictures(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures of ten classes that a network can tell apart, with effort: a faint pattern each, under noise."""
    rng = np.random.default_rng(0)
    patterns = natural_images(10, 32, 32, rng=rng).astype(np.float32)
    labels = np.arange(count) * 10 // count
    pictures = 0.7 * natural_images(count, 32, 32, rng=rng) + 0.3 * patterns[labels]
    return pictures.astype(np.uint8), labels


def read_pictures(folder: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures and their classes, sorted by class."""
    found = {
        name.decode() if isinstance(name, bytes) else str(name): int(label)
        for name, label in pickle.loads(labels.read_bytes()).items()
    }
    names = sorted(found, key=lambda name: (found[name], name))
    pictures = np.stack([np.asarray(Image.open(folder / name).convert("RGB")) for name in names])
    return pictures, np.array([found[name] for name in names])


def pack(path: Path, pictures: NDArray[np.uint8], labels: NDArray[np.int64]) -> Path:
    """A store of raw pictures in the order given."""
    size = pictures[0].size
    schema = Schema((Field("image", RAW, "|u1", pictures.shape[1:]), Field("label", COLUMN, "<i8", ())))
    spans = Spans.joined(pictures.reshape(-1), np.full(len(labels), size, np.int64))
    with create_store(path, schema) as writer:
        writer.append(SampleBatch([f"{i:06d}" for i in range(len(labels))], {"image": spans}, {"label": labels}))
    return path


def orders(dataset: FastDataset, memory: str) -> dict[str, Callable[[int], Iterable[Any]]]:
    """A loader for each order, by seed."""
    sizes = np.full(len(dataset), int(dataset.reader.field.nbytes), np.int64)

    def fast(seed: int, *, shuffle: bool | str, held: str) -> FastLoader:
        os.environ["FASTIO_SHUFFLE_MEMORY"] = held
        return FastLoader(dataset, _BATCH, shuffle=shuffle, seed=seed, threads=1)  # type: ignore[arg-type]

    def files(seed: int) -> Iterable[Any]:
        generator = torch.Generator().manual_seed(seed)
        plain = FastDataset(dataset.store.path, lambda picture: torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        return DataLoader(plain, _BATCH, shuffle=True, generator=generator)

    return {
        "DataLoader": files,
        "full": lambda seed: fast(seed, shuffle="full", held="1GB"),
        "held": lambda seed: fast(seed, shuffle=True, held="1GB"),
        "lanes": lambda seed: fast(seed, shuffle=True, held=memory),
        "blocks": lambda seed: FastLoader(dataset, batch_sampler=Blocks(sizes, seed), threads=1),
    }


def accuracy(loader: Iterable[Any], test: FastDataset, *, seed: int, epochs: int) -> float:
    """Per cent of the test set, after training a new network of this seed."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), 0.02, momentum=0.9)
    for _ in range(epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(_normal(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.eval()
    with torch.no_grad(), FastLoader(test, 256, threads=1) as batches:
        right = sum(int((network(_normal(images)).argmax(1) == labels).sum()) for images, labels in batches)
    return 100 * right / len(test)


def _normal(images: torch.Tensor) -> torch.Tensor:
    return images.contiguous().float() / 64 - 2


def mixing(loader: Iterable[Any]) -> dict[str, float]:
    """Distinct classes in a batch on average, and the drift of a class's share, of one epoch."""
    batches = [labels.numpy() for _, labels in loader]
    every = np.concatenate(batches)
    distinct = statistics.fmean(len(np.unique(labels)) for labels in batches if len(labels) == _BATCH)
    return {"classes": distinct, "drift": Classes.of(every).drift(np.arange(len(every)))}


@click.command()
@click.option("--pngs", type=_FILE, help="A flat folder of PNGs of one size.")
@click.option("--labels", type=_FILE, help="A pickle of {file name: class number}.")
@click.option("--count", default=10_000, show_default=True, help="Made pictures, where there are no PNGs.")
@click.option("--seeds", default=5, show_default=True)
@click.option("--epochs", default=1, show_default=True)
@click.option("--memory", default="5MB", show_default=True, help="For lanes.")
@click.option("--out", type=click.Path(path_type=Path), help="Write a JSON with each run.")
def main(
    pngs: Path | None, labels: Path | None, count: int, seeds: int, epochs: int, memory: str, out: Path | None
) -> None:
    """Train SEEDS networks in each order and print mean, least and most of their test accuracies."""
    torch.set_num_threads(1)
    if pngs is not None and labels is None:
        raise click.UsageError("--pngs needs --labels")
    pictures, classes = made_pictures(count) if pngs is None or labels is None else read_pictures(pngs, labels)
    tested = np.arange(len(classes)) % _TESTED == 0
    with tempfile.TemporaryDirectory() as folder:
        train = FastDataset(pack(Path(folder) / "train.h5", pictures[~tested], classes[~tested]))
        test = FastDataset(pack(Path(folder) / "test.h5", pictures[tested], classes[tested]))
        found: dict[str, list[float]] = {name: [] for name in orders(train, memory)}
        for seed in range(seeds):
            for name, order in orders(train, memory).items():
                begun = time.process_time()
                found[name].append(accuracy(order(seed), test, seed=seed, epochs=epochs))
                click.echo(
                    f"seed {seed} {name}: {found[name][-1]:.1f} % ({time.process_time() - begun:.0f} s)", err=True
                )
        mixed = {name: mixing(order(0)) for name, order in orders(train, memory).items()}
        chosen = str(orders(train, memory)["lanes"](0).stats.shuffle)  # type: ignore[attr-defined] # a FastLoader
    click.echo(
        f"{np.count_nonzero(~tested):,} pictures sorted by class, {epochs} epoch(s), batches of {_BATCH}; {chosen}"
    )
    for name, values in found.items():
        click.echo(
            f"{name:12} {statistics.fmean(values):5.1f} % ({min(values):.1f} - {max(values):.1f}); "
            f"{mixed[name]['classes']:.1f} classes a batch, a share drifts by {mixed[name]['drift']:.3f}"
        )
    if out is not None:
        out.write_text(json.dumps({"accuracy": found, "mixing": mixed, "lanes": chosen, "epochs": epochs}, indent=2))


if __name__ == "__main__":
    main()
