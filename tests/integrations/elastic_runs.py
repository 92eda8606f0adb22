"""Trainings of three epochs that one number of processes begins and another continues, in batches of another size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import Trainer

from fastio import FastLoader
from fastio.integrations.accelerate import prepare_loader
from fastio.integrations.lightning import FastDataModule
from fastio.integrations.transformers import use_loaders
from tests.integrations.test_lightning import Interrupted as LightningInterrupted
from tests.integrations.test_lightning import Model as LightningModel
from tests.integrations.test_lightning import StopAfter as LightningStop
from tests.integrations.test_lightning import trainer_of as lightning_trainer
from tests.integrations.test_transformers import Interrupted as TransformersInterrupted
from tests.integrations.test_transformers import Model, arguments
from tests.integrations.test_transformers import StopAfter as TransformersStop

BEFORE, AFTER = 4, 3  # the sizes of batches
HAD = 2  # batches of the second epoch that come before the interruption


def loaders(store: Path, batch_size: int) -> Any:
    """A factory of loaders in random order."""
    return partial(FastLoader, store, batch_size, shuffle="full", threads=1)


def _epoch(processes: int) -> int:
    """The number of batches of an epoch before the interruption."""
    return -(-23 // (BEFORE * processes))


def accelerate_begins(store: Path, folder: Path, processes: int) -> list[int]:
    """An epoch and the beginning of another; returns this process's samples."""
    accelerator = Accelerator(cpu=True)
    loader = prepare_loader(accelerator, loaders(store, BEFORE))
    seen = _labels(loader)
    running = iter(loader)
    seen += _labels(islice(running, HAD))
    accelerator._dataloaders = [loader]
    accelerator.save_state(str(folder / "accelerate"))
    accelerator.wait_for_everyone()
    return seen


def accelerate_continues(store: Path, folder: Path, processes: int) -> list[int]:
    """The rest of the epoch, whose gathered metrics must have no repetition, and another epoch."""
    accelerator = Accelerator(cpu=True)
    loader = prepare_loader(accelerator, loaders(store, AFTER))
    accelerator._dataloaders = [loader]
    accelerator.load_state(str(folder / "accelerate"))
    seen, gathered = [], []
    for _, labels in loader:
        seen += labels.tolist()
        gathered += accelerator.gather_for_metrics(labels).tolist()
    assert len(set(gathered)) == len(gathered) == 23 - loader_had(processes)
    return seen + _labels(loader)


def loader_had(processes: int) -> int:
    """How many samples of the second epoch the other number of processes has had."""
    return HAD * BEFORE * (3 - processes)


def _labels(batches: Any) -> list[int]:
    return [label for _, labels in batches for label in labels.tolist()]


def _trainer(folder: Path, processes: int, callbacks: list[Any], **options: Any) -> Trainer:
    backend = {"ddp_backend": "gloo"} if processes > 1 else {}
    return Trainer(Model(), arguments(folder, num_train_epochs=3, **backend, **options), callbacks=callbacks)


def transformers_begins(store: Path, folder: Path, processes: int) -> list[int]:
    """As ``accelerate_begins``, with a checkpoint of the Trainer."""
    step = _epoch(processes) + HAD
    saving = {"save_strategy": "steps", "save_steps": step, "per_device_train_batch_size": BEFORE}
    trainer = _trainer(folder / "trainer", processes, [TransformersStop(step)], **saving)
    use_loaders(trainer, train=loaders(store, BEFORE))
    with suppress(TransformersInterrupted):
        trainer.train()
    if processes > 1:
        torch.distributed.barrier()
    return [label for labels in trainer.model.seen for label in labels]


def transformers_continues(store: Path, folder: Path, processes: int) -> list[int]:
    """As ``accelerate_continues``, to the end of the third epoch."""
    trainer = _trainer(folder / "continued", processes, [], per_device_train_batch_size=AFTER)
    use_loaders(trainer, train=loaders(store, AFTER))
    (checkpoint,) = (folder / "trainer").glob("checkpoint-*")
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert trainer.state.global_step == trainer.state.max_steps == 3 * -(-23 // (AFTER * processes))
    return [label for labels in trainer.model.seen for label in labels]


def _lightning(processes: int, **options: Any) -> Any:
    return lightning_trainer(max_epochs=3, devices=processes, strategy="ddp" if processes > 1 else "auto", **options)


def lightning_begins(store: Path, folder: Path, processes: int) -> list[int]:
    """As ``accelerate_begins``, with a checkpoint of Lightning's Trainer."""
    model, stop = LightningModel(), LightningStop(_epoch(processes) + HAD, folder / "lightning.ckpt")
    with suppress(LightningInterrupted):
        _lightning(processes, callbacks=[stop]).fit(model, FastDataModule(loaders(store, BEFORE)))
    return [label for _, labels in model.seen for label in labels]


def lightning_continues(store: Path, folder: Path, processes: int) -> list[int]:
    """As ``accelerate_continues``, to the end of the third epoch."""
    model, trainer = LightningModel(), _lightning(processes)
    trainer.fit(model, FastDataModule(loaders(store, AFTER)), ckpt_path=folder / "lightning.ckpt")
    assert trainer.fit_loop.epoch_loop.batch_progress.current.ready == -(-23 // (AFTER * processes))
    return [label for _, labels in model.seen for label in labels]


Run = Callable[[Path, Path, int], list[int]]
BEGINS: dict[str, Run] = {
    "lightning": lightning_begins,
    "accelerate": accelerate_begins,
    "transformers": transformers_begins,
}
CONTINUES: dict[str, Run] = {
    "lightning": lightning_continues,
    "accelerate": accelerate_continues,
    "transformers": transformers_continues,
}


def all_trainers(runs: dict[str, Run], store: Path, folder: Path, processes: int) -> dict[str, list[int]]:
    """What this process has seen under each trainer; accelerate forgets what it keeps for the process."""
    seen = {}
    for name, run in runs.items():
        seen[name] = run(store, folder, processes)
        if processes == 1:
            AcceleratorState._reset_state(reset_partial_state=True)
            GradientState._reset_state()
            PartialState._reset_state()
    return seen
