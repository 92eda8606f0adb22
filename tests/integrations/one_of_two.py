"""What each of two processes does in test_two_processes: real trainers, gloo; writes what it has seen as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
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
from tests.forking import start_ranks, wait_for_ranks
from tests.integrations.elastic_runs import BEGINS, CONTINUES, all_trainers
from tests.integrations.test_lightning import Interrupted as LightningInterrupted
from tests.integrations.test_lightning import Model as LightningModel
from tests.integrations.test_lightning import StopAfter as LightningStop
from tests.integrations.test_lightning import trainer_of as lightning_trainer
from tests.integrations.test_transformers import Interrupted as TransformersInterrupted
from tests.integrations.test_transformers import Model, arguments
from tests.integrations.test_transformers import StopAfter as TransformersStop


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


def accelerate_resumed(store: Path, folder: Path) -> list[list[list[int]]]:
    """Three epochs at once, and with an end and a new beginning after 4 batches of the second."""
    accelerator = Accelerator(cpu=True)
    build = partial(FastLoader, store, 4, shuffle="full", threads=1)
    whole, first, second = (prepare_loader(accelerator, build) for _ in range(3))
    expected = [taken for _ in range(3) for taken in _batches(whole)]
    accelerator._dataloaders = [first]
    seen = _batches(first)
    running = iter(first)
    seen += [labels.tolist() for _, labels in islice(running, 2)]
    accelerator.save_state(str(folder / "accelerate"))
    accelerator.wait_for_everyone()  # rank 0 has written the state
    accelerator._dataloaders = [second]
    accelerator.load_state(str(folder / "accelerate"))
    return [expected, seen + _batches(second) + _batches(second)]


def _batches(loader: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in loader]


def transformers_resumed(store: Path, folder: Path) -> list[list[list[int]]]:
    """As ``accelerate_resumed``, by a checkpoint of the Trainer."""
    build = partial(FastLoader, store, 4, shuffle="full", threads=1)

    def trainer(callbacks: list[Any], out: str, **options: Any) -> Trainer:
        chosen = arguments(folder / out, num_train_epochs=3, ddp_backend="gloo", **options)
        made = Trainer(Model(), chosen, callbacks=callbacks)
        use_loaders(made, train=build)
        return made

    whole = trainer([], "whole")
    whole.train()
    saving = {"save_strategy": "steps", "save_steps": 5}
    first, second = trainer([TransformersStop(5)], "parts", **saving), trainer([], "parts", **saving)
    with suppress(TransformersInterrupted):
        first.train()
    torch.distributed.barrier()  # rank 0 has written the checkpoint
    second.train(resume_from_checkpoint=True)
    return [whole.model.seen, first.model.seen + second.model.seen]


def lightning_resumed(store: Path, folder: Path) -> list[list[list[int]]]:
    """As ``accelerate_resumed``, by a checkpoint of Lightning's Trainer."""
    build = partial(FastLoader, store, 4, shuffle="full", threads=1)
    options = {"max_epochs": 3, "devices": 2, "strategy": "ddp"}
    whole, first, second = LightningModel(), LightningModel(), LightningModel()
    lightning_trainer(**options).fit(whole, FastDataModule(build))
    checkpoint = folder / "lightning.ckpt"
    with suppress(LightningInterrupted):
        lightning_trainer(**options, callbacks=[LightningStop(5, checkpoint)]).fit(first, FastDataModule(build))
    lightning_trainer(**options).fit(second, FastDataModule(build), ckpt_path=checkpoint)
    return [[labels for _, labels in whole.seen], [labels for _, labels in first.seen + second.seen]]


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


def run_rank(store: Path, begun: Path, folder: Path, rank: int) -> None:
    """Write ``{trainer: what it saw}`` to the file ``rank`` of a folder."""
    early, out = built_without_ranks(store), folder / "out"
    seen = {
        "lightning": under_lightning(store),
        "accelerate": under_accelerate(store),
        "transformers": under_transformers(store, out),
        "refused": refused(store, early),
        "resumed": {
            "lightning": lightning_resumed(store, out),
            "accelerate": accelerate_resumed(store, out),
            "transformers": transformers_resumed(store, out),
        },
        "continued": all_trainers(CONTINUES, store, begun, 2),
        "begun": all_trainers(BEGINS, store, out / "begun", 2),
    }
    (folder / str(rank)).write_text(json.dumps(seen))


def main() -> int:
    """Be both processes: forks of one that has imported the three libraries, which takes longer than the trainings."""
    store, begun, folder = map(Path, sys.argv[1:])
    return int(any(wait_for_ranks(start_ranks(partial(run_rank, store, begun, folder), 2))))


if __name__ == "__main__":
    sys.exit(main())
