"""Under Lightning, the rest of an epoch that max_steps or an early stop has cut short comes when training goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastio import FastLoader
from tests.integrations.conftest import COUNT
from tests.integrations.test_lightning import BATCHES, Model, data_of, trainer_of


class SaveAtEpochEnd(pl.Callback):
    """Writes a checkpoint where ModelCheckpoint does."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        trainer.save_checkpoint(self.checkpoint)


class StopEarly(pl.Callback):
    """Asks the trainer to stop after so many steps, as EarlyStopping and Timer do."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step >= self.steps


class ShortEpochs(Model):
    """Ends each epoch after two batches, on purpose."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 2 else None


EPOCHS, STEPS = {"max_epochs": 3}, {"max_steps": 3 * BATCHES, "max_epochs": -1}


@pytest.mark.parametrize(
    ("steps", "how", "then", "when"),
    [
        (4, "max_steps", EPOCHS, "at the epoch's end"),
        (4, "should_stop", STEPS, "after fit"),
        (BATCHES, "max_steps", STEPS, "at the epoch's end"),
        (BATCHES, "should_stop", EPOCHS, "after fit"),
        (BATCHES + 2, "max_steps", EPOCHS, "after fit"),
        (BATCHES + 2, "should_stop", STEPS, "at the epoch's end"),
        (3 * BATCHES - 1, "max_steps", EPOCHS, "at the epoch's end"),
        (3 * BATCHES - 1, "max_steps", STEPS, "after fit"),
    ],
)
def test_a_stop_within_an_epoch_loses_no_sample(
    store: Path, tmp_path: Path, steps: int, how: str, then: dict[str, Any], when: str
) -> None:
    """The next training begins with the next batch, also if the stop was in the last epoch or at the end of one."""
    first, second, checkpoint = Model(), Model(), tmp_path / "last.ckpt"
    with FastLoader(store, 4, shuffle="full", threads=1) as loader:
        whole = [labels.tolist() for _ in range(3) for _, labels in loader]
    stop = {"max_steps": steps} if how == "max_steps" else {}
    callbacks = [SaveAtEpochEnd(checkpoint), *([] if stop else [StopEarly(steps)])]
    trainer = trainer_of(max_epochs=3, callbacks=callbacks, **stop)
    trainer.fit(first, data_of(store))
    if when == "after fit":
        trainer.save_checkpoint(checkpoint)
    trainer_of(**then).fit(second, data_of(store), ckpt_path=checkpoint)

    assert whole == [labels for _, labels in first.seen + second.seen]
    assert [list(range(COUNT))] * 3 == [sorted(first.epoch(epoch) + second.epoch(epoch)) for epoch in range(3)]


def test_an_epoch_that_was_ended_on_purpose_stays_ended(store: Path, tmp_path: Path) -> None:
    """A hook that returns -1 leaves out the rest of an epoch, also if training goes on from a checkpoint after it."""
    checkpoint, first, second = tmp_path / "last.ckpt", ShortEpochs(), Model()
    trainer_of(max_epochs=1, callbacks=[SaveAtEpochEnd(checkpoint)]).fit(first, data_of(store))
    trainer_of(max_epochs=2).fit(second, data_of(store), ckpt_path=checkpoint)

    assert [2, BATCHES] == [len(first.seen), len(second.seen)]
    assert list(range(COUNT)) == sorted(second.epoch(1))


def labelled_loader() -> DataLoader[Any]:
    """The same samples by torch's loader."""
    return DataLoader(TensorDataset(torch.arange(COUNT)[:, None].float(), torch.arange(COUNT)), 4, shuffle=True)


@pytest.mark.parametrize(("steps", "left"), [(BATCHES + 2, 4), (2 * BATCHES - 1, 1), (BATCHES, 0)])
def test_a_second_fit_without_a_checkpoint(
    store: Path, caplog: pytest.LogCaptureFixture, steps: int, left: int
) -> None:
    """It begins the next epoch, as with a DataLoader, and says once what that leaves out."""
    runs = []
    for data in (data_of(store), labelled_loader()):
        model, trainer = Model(), trainer_of(max_steps=steps, max_epochs=-1)
        trainer.fit(model, data)
        for more in (2, 4):
            trainer.fit_loop.epoch_loop.max_steps = steps + more * BATCHES
            trainer.fit(model, data)
        runs.append([epoch for epoch, _ in model.seen])
        assert all(list(range(COUNT)) == sorted(model.epoch(epoch)) for epoch in range(2, 4))
    warned = [record.getMessage() for record in caplog.records if "was stopped with" in record.getMessage()]

    assert runs[0] == runs[1]
    assert bool(left) == len(warned)
    assert not left or warned[0].startswith(f"{store}: epoch 1 was stopped with {left} batch")
