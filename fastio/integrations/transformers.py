"""FastLoader in the Trainer of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from fastio.integrations.accelerate import prepare_loader
from fastio.integrations.factory import LoaderFactory
from fastio.integrations.prepared import PreparedLoader
from fastio.integrations.resumed_epoch import ResumedEpoch, count_in_todays_steps

if TYPE_CHECKING:
    from transformers import Trainer

__all__ = ["as_inputs", "language_model_inputs", "use_loaders"]

Inputs = Callable[[Any], Mapping[str, Any]]


def as_inputs(batch: Any) -> Mapping[str, Any]:
    """
    Turn a batch into a dict under the names of a model's arguments.

    A pair becomes ``pixel_values`` and ``labels``. A dict of tokens loses only ``lengths``, which no model takes.
    Raises TypeError for any other batch.
    """
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name != "lengths"}
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return {"pixel_values": batch[0], "labels": batch[1]}
    raise TypeError(
        f"a batch is a {type(batch).__name__}, but a Trainer needs a dict of the model's arguments: pass a "
        "function that makes one to use_loaders as inputs="
    )


def language_model_inputs(batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """
    Return ``input_ids``, ``attention_mask`` and ``labels``: the same ids, with -100 (ignored by the loss) at padding.
    """
    ids, mask = batch["input_ids"], batch["attention_mask"]
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(~mask, -100)}


def use_loaders(
    trainer: Trainer,
    *,
    train: LoaderFactory | None = None,
    evaluate: LoaderFactory | None = None,
    inputs: Inputs = as_inputs,
) -> None:
    """
    Let a Trainer, or any subclass of it, take its batches from FastLoaders::

        trainer = Trainer(model, args, eval_dataset=FastDataset("val.lmdb"))
        use_loaders(trainer, train=partial(FastLoader, "train.lmdb", 32, shuffle=True),
                    evaluate=partial(FastLoader, "val.lmdb", 32))

    ``inputs`` turns a batch into the dict of the model's arguments. Order, transforms and seed are those of the
    loaders; the batch sizes must equal those of the TrainingArguments, which count by them.
    ``train(resume_from_checkpoint=...)`` continues with the next sample of the epoch, on any number of processes and
    in batches of any size; skipped batches are not read. With another number or size, the steps of the checkpoint, and
    a learning rate that depends on them, are counted in today's batches.

    A Trainer insists on an ``eval_dataset`` if it is to evaluate. ``evaluate()`` without a dataset uses the loader,
    ``evaluate(other)`` the Trainer's usual way. Evaluation always uses epoch 0, so random transforms repeat.
    """
    if train is not None:
        trainer.get_train_dataloader = training = _Training(trainer, train, inputs)
        trainer.add_callback(ResumedEpoch())
        count_in_todays_steps(trainer, lambda: training.loader)
    if evaluate is not None:
        trainer.get_eval_dataloader = _Evaluation(trainer, evaluate, inputs)


class _Training:
    """``get_train_dataloader``: builds a loader for each training and closes the one before."""

    def __init__(self, trainer: Trainer, factory: LoaderFactory, inputs: Inputs) -> None:
        self._trainer = trainer
        self._factory = factory
        self._inputs = inputs
        self.loader: PreparedLoader | None = None

    def __call__(self) -> PreparedLoader:
        if self.loader is not None:
            self.loader.close()
        expected = self._trainer.args.train_batch_size
        self.loader = _prepared(self._trainer, self._factory, self._inputs, name="train_batch_size", expected=expected)
        self.loader.count_once()
        return self.loader


class _Evaluation:
    """``get_eval_dataloader``: builds one loader at the first call and uses it for every evaluation."""

    def __init__(self, trainer: Trainer, factory: LoaderFactory, inputs: Inputs) -> None:
        self._trainer = trainer
        self._factory = factory
        self._inputs = inputs
        self._usual = trainer.get_eval_dataloader
        self._loader: PreparedLoader | None = None

    def __call__(self, eval_dataset: Any = None) -> Any:
        trainer = self._trainer
        if eval_dataset is not None and eval_dataset is not trainer.eval_dataset:
            return self._usual(eval_dataset)
        if self._loader is None:
            expected = trainer.args.eval_batch_size
            self._loader = _prepared(trainer, self._factory, self._inputs, name="eval_batch_size", expected=expected)
        self._loader.set_epoch(0)
        return self._loader


def _prepared(trainer: Trainer, factory: LoaderFactory, inputs: Inputs, *, name: str, expected: int) -> PreparedLoader:
    prepared = prepare_loader(trainer.accelerator, factory, form=inputs)
    batch_size = prepared.loader.batch_size
    if batch_size not in (None, expected):
        raise ValueError(
            f"{prepared.loader.base.store.path}: batches of {batch_size}, but the TrainingArguments count "
            f"{expected} (per_device_{name} x n_gpu): make them equal"
        )
    return prepared
