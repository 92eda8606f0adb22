"""
Accuracy of networks trained with fastio's transforms and with torchvision's, on small pictures; needs torchvision.

    python -m benchmarks.trainings.accuracy simclr --pngs DIR --labels labels.pkl [--seeds 5] [--out FILE]
    python -m benchmarks.trainings.accuracy randaugment --pngs DIR --labels labels.pkl

The pictures are a flat folder of PNGs of one size and a pickle of their classes, or made ones; every fifth is kept for
the test. For each seed, a network is trained with each source of augmentation: the first weights, the order and the
stored pictures are the same.

* fastio: FastLoader's native transforms
* torchvision: FastDataset and torchvision's transforms v2 of uint8 tensors, in a DataLoader
* crops alone: FastLoader without what is examined, to see what that is worth

``randaugment`` trains a classifier with RandomCrop, flip and RandAugment. ``simclr`` trains an encoder without labels,
by two views of each picture with RandomResizedCrop, flip, ColorJitter and RandomGrayscale (Chen et al. 2020,
arXiv:2002.05709, without blur, as they do for CIFAR-10), then a linear classifier on what it makes of whole pictures.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Sampler

import fastio.transforms as native
from benchmarks.shuffle_training import made_pictures, pack, read_pictures
from fastio import FastDataset, FastLoader

__all__ = ["main"]

_TESTED = 5  # every fifth sample
_BATCH = 128
_TEMPERATURE = 0.5
_FILE = click.Path(exists=True, path_type=Path)

Recipe = Callable[[Any], list[Any]]  # from a library's transforms


def randaugment(v: Any) -> list[Any]:
    """What changes a picture for the classifier."""
    return [v.RandomCrop(32, padding=4), v.RandomHorizontalFlip(), v.RandAugment()]


def simclr(v: Any) -> list[Any]:
    """What makes a view of a picture."""
    jitter = v.RandomApply([v.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)
    return [v.RandomResizedCrop(32), v.RandomHorizontalFlip(), jitter, v.RandomGrayscale(0.2)]


class Order(Sampler[int]):
    """A new order each epoch, by a seed: the same for both loaders."""

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed, self._epoch = count, seed, -1

    def __len__(self) -> int:
        return self._count

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that comes next."""
        self._epoch = epoch - 1

    def __iter__(self) -> Iterator[int]:
        self._epoch += 1
        yield from np.random.default_rng((self._seed, self._epoch)).permutation(self._count).tolist()


def loaders(store: Path, recipe: Recipe, views: int) -> dict[str, Callable[[int], Iterable[Any]]]:
    """By seed, what yields a list of views and the classes, in each way."""

    def fast(seed: int, steps: Sequence[Any]) -> Iterable[Any]:
        dataset = FastDataset(store)
        order = Order(len(dataset), seed)
        pairs = [(views, list(steps))]
        return FastLoader(dataset, _BATCH, sampler=order, seed=seed, drop_last=True, threads=1, views=pairs)

    def theirs(seed: int) -> Iterable[Any]:
        from torchvision.transforms import v2

        steps = v2.Compose(recipe(v2))
        to_tensor = v2.PILToTensor()

        def several(picture: Any) -> list[torch.Tensor]:
            tensor = to_tensor(picture)
            return [steps(tensor) for _ in range(views)]

        dataset = FastDataset(store, several)
        return DataLoader(dataset, _BATCH, sampler=Order(len(dataset), seed), drop_last=True)

    return {
        "fastio": lambda seed: fast(seed, recipe(native)),
        "torchvision": theirs,
        "crops alone": lambda seed: fast(seed, recipe(native)[:2]),
    }


def encoder(width: int = 32) -> nn.Sequential:
    """From pictures to vectors of 4 x ``width`` numbers."""

    def conv(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = conv(3, width), conv(width, 2 * width), conv(2 * width, 4 * width)
    return nn.Sequential(*(layer for part in layers for layer in part), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def train(network: nn.Module, loader: Iterable[Any], loss_of: Callable[[Any, Any], torch.Tensor], epochs: int) -> float:
    """Train with one cycle of the learning rate, and return the mean loss of the last epoch."""
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.05)
    steps = epochs * len(loader)  # type: ignore[arg-type] # both loaders have a length
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    losses: list[float] = []
    for _ in range(epochs):
        losses.clear()
        for views, labels in loader:
            loss = loss_of(network(_normal(torch.cat(list(views)))), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return statistics.fmean(losses)


def contrast(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """SimCLR's loss: each of 2 B views has to find the other view of its picture."""
    directions = functional.normalize(embeddings, dim=1)
    scores = (directions @ directions.T / _TEMPERATURE).fill_diagonal_(-torch.inf)
    return functional.cross_entropy(scores, torch.arange(len(scores)).roll(len(labels)))


def right(classifier: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Per cent that are classified correctly."""
    classifier.eval()
    with torch.no_grad():
        answers = torch.cat([classifier(part) for part in inputs.split(500)]).argmax(1)
    return 100 * (answers == labels).float().mean().item()


def probe(network: nn.Module, train_set: Sequence[torch.Tensor], test_set: Sequence[torch.Tensor]) -> float:
    """Per cent of the test set by a linear classifier of what the network makes of pictures."""
    network.eval()
    with torch.no_grad():
        seen, tested = (torch.cat([network(part) for part in images.split(500)]) for images, _ in (train_set, test_set))
    mean, std = seen.mean(0), seen.std(0) + 1e-6
    seen, tested = (seen - mean) / std, (tested - mean) / std
    linear = nn.Linear(seen.shape[1], 10)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        decay = 1e-4 * linear.weight.square().sum()
        loss: torch.Tensor = functional.cross_entropy(linear(seen), train_set[1]) + decay
        loss.backward()
        return loss

    optimizer.step(closure)
    return right(linear, tested, test_set[1])


def _normal(images: torch.Tensor) -> torch.Tensor:
    return images.contiguous().float() / 64 - 2


def accuracy(training: str, loader: Iterable[Any], sets: Sequence[Any], *, seed: int, epochs: int) -> dict[str, float]:
    """Test accuracy in per cent, and the loss of the last epoch, of a new network of this seed."""
    torch.manual_seed(seed)
    train_set, test_set = sets
    body = encoder()
    if training == "simclr":
        head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
        loss = train(nn.Sequential(body, head), loader, contrast, epochs)
        return {"accuracy": probe(body, train_set, test_set), "loss": loss}
    network = nn.Sequential(body, nn.Linear(128, 10))
    loss = train(network, loader, functional.cross_entropy, epochs)
    return {"accuracy": right(network, *test_set), "loss": loss}


def _whole(store: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """All pictures of a store as the network takes them, and their classes."""
    with FastLoader(store, 1000, threads=1) as loader:
        images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
    return _normal(images), labels


@click.command(help=__doc__)
@click.argument("training", type=click.Choice(["simclr", "randaugment"]))
@click.option("--pngs", type=_FILE, help="A flat folder of PNGs of 32 x 32.")
@click.option("--labels", type=_FILE, help="A pickle of {file name: class number}.")
@click.option("--count", default=10_000, show_default=True, help="Made pictures, where there are no PNGs.")
@click.option("--seeds", default=5, show_default=True)
@click.option("--epochs", default=10, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a JSON with each run.")
def main(
    training: str, pngs: Path | None, labels: Path | None, count: int, seeds: int, epochs: int, out: Path | None
) -> None:
    """Train SEEDS networks by each loader; print mean, least and most of their test accuracies."""
    torch.set_num_threads(1)
    if pngs is not None and labels is None:
        raise click.UsageError("--pngs needs --labels")
    pictures, classes = made_pictures(count) if pngs is None or labels is None else read_pictures(pngs, labels)
    tested = np.arange(len(classes)) % _TESTED == 0
    recipe, views = (simclr, 2) if training == "simclr" else (randaugment, 1)
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(folder) / f"{name}.h5" for name in ("train", "test")]
        for store, chosen in zip(stores, (~tested, tested), strict=True):
            pack(store, pictures[chosen], classes[chosen])
        sets = [_whole(store) for store in stores]
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in loaders(stores[0], recipe, views)}
        for seed in range(seeds):
            for name, make in loaders(stores[0], recipe, views).items():
                begun = time.process_time()
                run = accuracy(training, make(seed), sets, seed=seed, epochs=epochs)
                runs[name].append({"seed": seed, **run, "cpu_s": time.process_time() - begun})
                click.echo(f"seed {seed} {name}: {runs[name][-1]}", err=True)
                if out is not None:
                    out.write_text(json.dumps(_described(training, runs, sets, epochs), indent=1) + "\n")
    click.echo(
        f"{training}: {len(sets[0][1]):,} pictures, {epochs} epochs of batches of {_BATCH}; per cent of the test"
    )
    for name, made in runs.items():
        values = [run["accuracy"] for run in made]
        spread = f"{min(values):.1f} - {max(values):.1f}, standard deviation {statistics.stdev(values):.2f}"
        click.echo(f"{name:12} {statistics.fmean(values):5.1f} % ({spread})")


def _described(training: str, runs: dict[str, Any], sets: Sequence[Any], epochs: int) -> dict[str, Any]:
    import torchvision

    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    counts = {"trained": len(sets[0][1]), "tested": len(sets[1][1]), "epochs": epochs}
    return {"training": training, **versions, **counts, "runs": runs}


if __name__ == "__main__":
    main()
