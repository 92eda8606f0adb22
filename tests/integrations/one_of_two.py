"""What each of two processes does in test_two_processes: real trainers, gloo; prints what it has seen as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import Trainer

from fastio import FastDataset, FastLoader, LengthBucketSampler
from fastio.integrations.accelerate import prepare_loader
from fastio.integrations.lightning import FastDataModule
from fastio.integrations.transformers import use_loaders
from tests.integrations.test_lightning import Model as LightningModel
from tests.integrations.test_lightning import trainer_of as lightning_trainer
from tests.integrations.test_transformers import Model, arguments


def under_accelerate(store: Path) -> dict[str, Any]:
    """Two epochs, and what gather_for_metrics makes of the ordered samples."""
    accelerator = Accelerator(cpu=True)
    loader = prepare_loader(accelerator, partial(FastLoader, store, 4, shuffle="full", threads=1, uneven="drop"))
    ordered = prepare_loader(accelerator, partial(FastLoader, store, 4, threads=1))
    _, same = accelerator.prepare(torch.nn.Linear(1, 1), loader)
    epochs = [[label for _, labels in same for label in labels.tolist()] for _ in range(2)]
    gathered = [accelerator.gather_for_metrics(labels).tolist() for _, labels in ordered]
    return {"epochs": epochs, "gathered": [label for labels in gathered for label in labels]}


def under_transformers(store: Path, folder: Path) -> dict[str, Any]:
    """Two epochs, and the labels of an evaluation."""
    results: list[Any] = []
    trainer = Trainer(
        Model(),
        arguments(folder, num_train_epochs=2, ddp_backend="gloo"),
        eval_dataset=FastDataset(store),
        compute_metrics=lambda found: results.append(found) or {},  # type: ignore[func-returns-value]
    )
    use_loaders(
        trainer,
        train=partial(FastLoader, store, 4, shuffle="full", threads=1, uneven="drop"),
        evaluate=partial(FastLoader, store, 8, threads=1),
    )
    trainer.train()
    trainer.evaluate()
    seen = trainer.model.seen
    half = len(seen) // 2
    epochs = [[label for labels in part for label in labels] for part in (seen[:half], seen[half:])]
    return {"epochs": epochs, "evaluated": results[-1].label_ids.tolist()}


def under_lightning(store: Path) -> dict[str, Any]:
    """Two epochs."""
    model = LightningModel()
    data = FastDataModule(partial(FastLoader, store, 4, shuffle="full", threads=1, uneven="drop"))
    lightning_trainer(max_epochs=2, devices=2, strategy="ddp").fit(model, data)
    return {"epochs": [model.epoch(0), model.epoch(1)]}


def built_without_ranks(store: Path) -> FastLoader:
    """A loader from before a launcher said anything, as in a script that Lightning or spawn starts again."""
    hidden = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")}
    loader = FastLoader(store, 4, threads=1)
    os.environ.update(hidden)
    return loader


def refused(store: Path, early: FastLoader) -> dict[str, str]:
    """The first sentence of what is said where samples would be lost or doubled."""
    dataset = FastDataset(store)
    sampler = LengthBucketSampler(dataset.lengths, batch_size=4)
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(DataLoader(dataset, batch_sampler=sampler))
    return {"prepared": _error(lambda: list(prepared)), "early": _error(lambda: list(accelerator.prepare(early)))}


def _error(work: Callable[[], object]) -> str:
    try:
        work()
    except ValueError as exc:
        return str(exc)
    return "nothing"


def main() -> None:
    """Write ``{trainer: what it saw}`` to the file named last."""
    store, folder, result = map(Path, sys.argv[1:])
    early = built_without_ranks(store)
    seen = {
        "lightning": under_lightning(store),
        "accelerate": under_accelerate(store),
        "transformers": under_transformers(store, folder),
        "refused": refused(store, early),
    }
    result.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
