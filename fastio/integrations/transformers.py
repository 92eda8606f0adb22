"""FastLoader in the Trainer of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from fastio.integrations.accelerate import prepare_loader
from fastio.integrations.factory import LoaderFactory
from fastio.integrations.packages import imported
from fastio.integrations.prepared import PreparedLoader
from fastio.loader.fast_loader import FastLoader
from fastio.samplers.position import check_state

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ExportableState
else:
    TrainerCallback = imported("transformers", extra="transformers").TrainerCallback
    ExportableState = imported("transformers.trainer_callback", extra="transformers").ExportableState

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
    Let a Trainer, or any subclass of it, take its batches from FastLoaders.

        trainer = Trainer(model, args, eval_dataset=FastDataset("val.lmdb"))
        use_loaders(trainer, train=partial(FastLoader, "train.lmdb", 32, shuffle=True),
                    evaluate=partial(FastLoader, "val.lmdb", 32))

    ``inputs`` turns a batch into the dict of the model's arguments. Order, transforms and seed are those of the
    loaders; the batch sizes must equal those of the TrainingArguments, which count by them.
    ``train(resume_from_checkpoint=...)`` continues with the next batch of the epoch; skipped batches are not read.

    A Trainer insists on an ``eval_dataset`` if it is to evaluate. ``evaluate()`` without a dataset uses the loader,
    ``evaluate(other)`` the Trainer's usual way. Evaluation always uses epoch 0, so random transforms repeat.
    """
    if train is not None:
        trainer.get_train_dataloader = _Training(trainer, train, inputs)
        trainer.add_callback(ResumedEpoch())
    if evaluate is not None:
        trainer.get_eval_dataloader = _Evaluation(trainer, evaluate, inputs)


class ResumedEpoch(TrainerCallback, ExportableState):  # type: ignore[misc] # see the overrides of mypy
    """
    Sets the epoch of a checkpoint before the Trainer skips that epoch's first batches.

    transformers 5.1 sets the epoch on what ``skip_first_batches`` returns, which does not pass it on. The Trainer
    counts only steps; this class adds to its checkpoints, under the class's name, which samples those steps were.
    """

    def __init__(self) -> None:
        self.trained_on: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        """Return what the Trainer writes into its checkpoints."""
        return {"args": {}, "attributes": {"trained_on": self.trained_on}}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: PreparedLoader | None = None, **_: Any
    ) -> None:
        if not isinstance(train_dataloader, PreparedLoader):
            return
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {}).get("trained_on")
        accumulated = args.gradient_accumulation_steps
        if saved and state.global_step and not args.ignore_data_skip:
            _check_same(train_dataloader.loader, saved, accumulated, step=state.global_step)
        self.trained_on = {**train_dataloader.state_dict(), "gradient_accumulation_steps": accumulated}
        state.stateful_callbacks[type(self).__name__] = self.state()  # the Trainer expects one there when it saves
        train_dataloader.set_epoch(int(state.epoch or 0))


def _check_same(loader: FastLoader, saved: Mapping[str, Any], accumulated: int, *, step: int) -> None:
    """Raise ValueError if a number of steps does not mean the same samples as in the checkpoint."""
    steps, place = saved.get("gradient_accumulation_steps"), loader.place
    division, known = loader.state_dict()["division"], saved.get("division", saved)
    try:
        check_state({name: known.get(name) for name in division}, division, owner="loader")
        loader.load_state_dict({**saved, "epoch": place[0], "consumed": None, "batch": 0})
        loader.skip_to(place)
        if steps != accumulated:
            raise ValueError(f"gradient_accumulation_steps is {steps} in the state and {accumulated} here")
    except ValueError as exc:
        raise ValueError(
            f"the checkpoint of step {step}: {exc}. To start the epoch over instead, set "
            "TrainingArguments(ignore_data_skip=True)"
        ) from exc


class _Training:
    """``get_train_dataloader``: builds a loader for each training and closes the one before."""

    def __init__(self, trainer: Trainer, factory: LoaderFactory, inputs: Inputs) -> None:
        self._trainer = trainer
        self._factory = factory
        self._inputs = inputs
        self._loader: PreparedLoader | None = None

    def __call__(self) -> PreparedLoader:
        if self._loader is not None:
            self._loader.close()
        expected = self._trainer.args.train_batch_size
        self._loader = _prepared(self._trainer, self._factory, self._inputs, name="train_batch_size", expected=expected)
        return self._loader


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
