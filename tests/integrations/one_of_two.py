"""What each of two processes does in test_two_processes: real trainers, gloo; prints what it has seen as JSON."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from transformers import Trainer

from fastio import FastDataset, FastLoader
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


def main() -> None:
    """Write ``{trainer: what it saw}`` to the file named last."""
    store, folder, result = map(Path, sys.argv[1:])
    seen = {
        "lightning": under_lightning(store),
        "accelerate": under_accelerate(store),
        "transformers": under_transformers(store, folder),
    }
    result.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
