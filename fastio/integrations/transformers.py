"""FastLoader in the Trainer of Hugging Face transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastio.integrations.accelerate import PreparedLoader, prepare_loader
from fastio.integrations.factory import LoaderFactory
from fastio.integrations.packages import imported
from fastio.lazy import torch
from fastio.loader.fast_loader import FastLoader
from fastio.samplers.position import check_state

if TYPE_CHECKING:
    from transformers import Trainer

__all__ = [
    "as_inputs",
    "language_model_inputs",
    "use_loaders",
]


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
    Return ``input_ids`` and ``labels``, the same ids with -100 (ignored by the loss) where none is foretold.

    Padded batches also have their ``attention_mask``, and -100 at padding. Windows of a TokenStream with
    documents="mask" have their ``position_ids``, and -100 at the first id of each document. Raises ValueError for
    packed batches with labels of their own.
    """
    ids = batch["input_ids"]
    if "attention_mask" in batch:
        mask = batch["attention_mask"]
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(~mask, -100)}
    if "labels" in batch:
        raise ValueError("the batch says which ids count in the loss: pass inputs= a function that takes its labels")
    if "position_ids" not in batch:
        return {"input_ids": ids, "labels": ids}
    positions = batch["position_ids"]
    return {"input_ids": ids, "position_ids": positions, "labels": ids.masked_fill(positions == 0, -100)}


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


# ResumedEpoch: what a checkpoint of transformers' Trainer says about its loader, and how training continues there.

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ExportableState
else:
    TrainerCallback = imported("transformers", extra="transformers").TrainerCallback
    ExportableState = imported("transformers.trainer_callback", extra="transformers").ExportableState


log = logging.getLogger(__name__)


class ResumedEpoch(TrainerCallback, ExportableState):  # type: ignore[misc] # see the overrides of mypy
    """
    Writes the loader's position into the Trainer's checkpoints, under the class's name, and continues there.

    The Trainer counts only steps, and skips as many batches of the epoch. The loader continues at its own position
    instead, which other processes and batch sizes can continue too; the skipped batches are never asked for.
    Checkpoints from before have no position, only what the loader was like: they continue in the same batches.
    """

    def __init__(self) -> None:
        self.trained_on: dict[str, Any] = {}
        self._loader: PreparedLoader | None = None

    def state(self) -> dict[str, Any]:
        """Return what the Trainer writes into its checkpoints."""
        position = {} if self._loader is None else {"position": self._loader.state_dict()}
        return {"args": {}, "attributes": {"trained_on": self.trained_on, **position}}

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        train_dataloader: PreparedLoader | None = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Let the loader start where the checkpoint was written, or at the beginning of the state's epoch."""
        if not isinstance(train_dataloader, PreparedLoader):
            return
        accumulated, loader = args.gradient_accumulation_steps, train_dataloader.loader
        saved = _attributes(state) if state.global_step and not args.ignore_data_skip else {}
        if "position" in saved:
            updates = _updates(train_dataloader.counted, accumulated)
            step = _todays_step(train_dataloader, saved["position"], accumulated, step=state.global_step)
            if step != state.global_step:
                raise ValueError(
                    f"the checkpoint of step {state.global_step} is step {step} in today's batches, which this version "
                    "of transformers cannot be told: continue with the number of processes and the batch size of the "
                    "checkpoint. To start the epoch over instead, set TrainingArguments(ignore_data_skip=True)"
                )
            train_dataloader.expect_skipped((step % updates) * accumulated)
            _follow(lr_scheduler, step - saved.get("counted_before", step))
        else:
            if saved.get("trained_on"):
                _check_same(loader, saved["trained_on"], accumulated, step=state.global_step)
            train_dataloader.set_epoch(int(state.epoch or 0))
        self.trained_on = {**train_dataloader.state_dict(), "gradient_accumulation_steps": accumulated}
        self._loader = train_dataloader
        state.stateful_callbacks[type(self).__name__] = self.state()  # the Trainer expects one there when it saves


def count_in_todays_steps(trainer: Trainer, loader: Callable[[], PreparedLoader | None]) -> None:
    """
    Let a Trainer translate the step of a checkpoint before it counts by it which epoch and batches to skip.

    There is no hook for that. The Trainer calls ``_load_callback_state`` between reading the checkpoint's state and
    counting; where a version of transformers does not, ResumedEpoch refuses a checkpoint that needs to be translated.
    """
    load = getattr(trainer, "_load_callback_state", None)
    if load is None:
        return

    def translated() -> None:
        load()
        state, args, prepared = trainer.state, trainer.args, loader()
        saved = _attributes(state)
        if prepared is None or "position" not in saved or not state.global_step or args.ignore_data_skip:
            return
        accumulated = args.gradient_accumulation_steps
        step = _todays_step(prepared, saved["position"], accumulated, step=state.global_step)
        if step != state.global_step:
            log.warning(
                "%s: the checkpoint of step %d continues as step %d, counted in today's batches; checkpoints to come "
                "are numbered from there: give them another output_dir, or name the one to resume from",
                prepared.loader.base.store.path,
                state.global_step,
                step,
            )
        saved["counted_before"], state.global_step = state.global_step, step

    trainer._load_callback_state = translated


def _attributes(state: Any) -> dict[str, Any]:
    """Return what ResumedEpoch has written into the Trainer's state."""
    saved = state.stateful_callbacks.get(ResumedEpoch.__name__, {})
    attributes: dict[str, Any] = saved.get("attributes", {}) if isinstance(saved, Mapping) else {}
    return attributes


def _updates(batches: int, accumulated: int) -> int:
    """Return how many optimizer steps the Trainer makes of so many batches."""
    return max(1, -(-batches // accumulated))


def _todays_step(prepared: PreparedLoader, position: Mapping[str, Any], accumulated: int, *, step: int) -> int:
    """
    Move the loader to a saved position; return the number of steps after which the Trainer of today would be there.

    ``step`` is the checkpoint's. Raises ValueError, naming it, for the position of another loader, and if what is left
    of the epoch cannot be accumulated as the Trainer accumulates a whole epoch.
    """
    whole = prepared.counted
    try:
        prepared.load_state_dict(position)
        epoch, left = prepared.loader.place[0], prepared.loader.remaining
        if left == 0:
            prepared.set_epoch(epoch + 1)
            return (epoch + 1) * _updates(whole, accumulated)
        if left > whole or (whole - left) % accumulated:
            raise ValueError(
                f"{left} batches are left of an epoch of {whole}, and the Trainer accumulates {accumulated} from the "
                "epoch's beginning: continue with gradient_accumulation_steps=1 or the checkpoint's batches"
            )
    except ValueError as exc:
        raise ValueError(
            f"the checkpoint of step {step}: {exc}. To start the epoch over instead, set "
            "TrainingArguments(ignore_data_skip=True)"
        ) from exc
    return epoch * _updates(whole, accumulated) + (whole - left) // accumulated


def _follow(scheduler: Any, by: int) -> None:
    """Move a learning rate that is a function of the step by so many steps; others cannot be moved."""
    scheduler = getattr(scheduler, "scheduler", scheduler)
    if by and isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
        scheduler.last_epoch = max(0, scheduler.last_epoch + by) - 1
        scheduler.step()
    elif by:
        log.warning("%s still counts the steps of the checkpoint, %d fewer than today's", type(scheduler).__name__, by)


def _check_same(loader: FastLoader, saved: Mapping[str, Any], accumulated: int, *, step: int) -> None:
    """Raise ValueError if a number of steps does not mean the same samples as in a checkpoint without a position."""
    steps, place = saved.get("gradient_accumulation_steps"), loader.place
    division, known = loader.state_dict()["division"], saved.get("division", saved)
    # Either may leave out options that have their defaults; the oldest states have no division of their own.
    names = list(division) if known is saved else sorted(division.keys() | known.keys())
    try:
        check_state(*({name: options.get(name) for name in names} for options in (known, division)), owner="loader")
        loader.load_state_dict({**saved, "epoch": place[0], "consumed": None, "batch": 0})
        loader.skip_to(place)
        if steps != accumulated:
            raise ValueError(f"gradient_accumulation_steps is {steps} in the state and {accumulated} here")
    except ValueError as exc:
        raise ValueError(
            f"the checkpoint of step {step}: {exc}. To start the epoch over instead, set "
            "TrainingArguments(ignore_data_skip=True)"
        ) from exc
