"""FastDataModule: loaders for a Lightning Trainer, each built once its process knows rank and device."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastio.integrations.factory import LoaderFactory, check_ranks
from fastio.integrations.packages import imported
from fastio.lazy import imported_torch, torch
from fastio.loader.fast_loader import FastLoader
from fastio.machine import rank_and_world
from fastio.types.units import counted

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer

__all__ = ["FastDataModule"]

log = logging.getLogger(__name__)


def _package() -> str:
    """Return the one of Lightning's two packages that the program uses; their classes do not know each other."""
    loaded = [name for name in ("pytorch_lightning", "lightning.pytorch") if name in sys.modules]
    installed = [name for name in ("pytorch_lightning", "lightning") if find_spec(name) is not None]
    if loaded:
        return loaded[0]
    return "lightning.pytorch" if installed == ["lightning"] else "pytorch_lightning"


if not TYPE_CHECKING:
    imported_torch()  # says what to install before Lightning fails without it
    _lightning = imported(_package(), extra="lightning")
    Callback, LightningDataModule = _lightning.Callback, _lightning.LightningDataModule


class FastDataModule(LightningDataModule):
    """
    Gives a Lightning Trainer its FastLoaders::

        trainer.fit(model, FastDataModule(train=partial(FastLoader, "train.lmdb", 256, shuffle=True)))

    * ``train``, ``val``, ``test``, ``predict`` are factories (see ``LoaderFactory``); the last three may be lists.
    * Rank and world size come from the trainer's strategy; ``use_distributed_sampler`` has no effect.
    * Batches arrive on the trainer's device, so Lightning has nothing to copy. On devices other than CPU and CUDA,
      Lightning copies them.
    * Lightning sets the epoch, and saves and loads the position of the training loader with its checkpoints: a
      training that was interrupted within an epoch continues with the next sample, on any number of ranks and in
      batches of any size.
    * ``loaders[stage]`` holds the loaders built last, for ``stats`` and ``skipped``. They are closed when the stage
      ends.

    The base class comes from ``pytorch_lightning``, or from ``lightning.pytorch`` if the program has imported only
    that one or only that one is installed: import your Trainer first.
    """

    def __init__(
        self,
        train: LoaderFactory | None = None,
        val: LoaderFactory | Sequence[LoaderFactory] | None = None,
        test: LoaderFactory | Sequence[LoaderFactory] | None = None,
        predict: LoaderFactory | Sequence[LoaderFactory] | None = None,
    ) -> None:
        super().__init__()
        given = {"train": train, "val": val, "test": test, "predict": predict}
        self._factories = {stage: made for stage, made in given.items() if made is not None}
        self.loaders: dict[str, list[FastLoader]] = {}
        for stage in self._factories:
            # Set on the instance: a method of the class would tell Lightning that there is data, and it warns if the
            # matching step is missing.
            setattr(self, f"{stage}_dataloader", partial(self._built, stage))

    def teardown(self, stage: str) -> None:
        """Close the loaders. Lightning calls this when a stage ends."""
        for loaders in self.loaders.values():
            for loader in loaders:
                loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """Close the loaders. Lightning calls this when an exception ends the training."""
        self.teardown("fit")

    def __getstate__(self) -> dict[str, Any]:
        """Return what spawned processes get: the factories, from which each process builds its own loaders."""
        return {**self.__dict__, "loaders": {}}

    def _built(self, stage: str) -> FastLoader | list[FastLoader]:
        """Build the loaders of a stage in place of its old ones; several if the stage has several factories."""
        factories = self._factories[stage]
        part = getattr(self.trainer, "overfit_batches", 0)
        if part:
            raise ValueError(
                f"overfit_batches={part}: Lightning would rebuild the loader; for the same batches in every epoch use "
                f"limit_train_batches={part} and a loader without shuffle"
            )
        for loader in self.loaders.pop(stage, []):
            loader.close()
        if stage == "train" and self.trainer is not None:
            self._follow(self.trainer)
        rank, world_size = self._ranks()
        device = self._device()
        self.loaders[stage] = built = []
        for factory in factories if isinstance(factories, Sequence) else [factories]:
            built.append(factory(rank=rank, world_size=world_size, device=device))
            check_ranks(built[-1], rank=rank, world_size=world_size)
            if stage == "train" and self.trainer is not None:
                built[-1].set_epoch(self.trainer.current_epoch)  # Lightning asks for its length now
        return built if isinstance(factories, Sequence) else built[0]

    def _follow(self, trainer: Trainer) -> None:
        """Add the callback that keeps Lightning's count of batches right, once."""
        callbacks = trainer.callbacks  # type: ignore[attr-defined] # Lightning sets it in a connector
        if not any(isinstance(callback, BatchCounts) and callback.data is self for callback in callbacks):
            callbacks.append(BatchCounts(self))

    def _ranks(self) -> tuple[int, int]:
        """
        Return rank and world size among the processes that read different data; with tensor parallelism, these are
        fewer than all processes.
        """
        if self.trainer is None:
            return rank_and_world()
        parts = self.trainer.distributed_sampler_kwargs
        if parts is None:
            return self.trainer.global_rank, self.trainer.world_size
        return int(parts["rank"]), int(parts["num_replicas"])

    def _device(self) -> torch.device | None:
        if self.trainer is None:
            return None
        device = self.trainer.strategy.root_device
        return device if device.type in ("cpu", "cuda") else None


class BatchCounts(Callback):
    """
    Lets Lightning count the batches of an epoch as the loader does: it ends an epoch at a number of batches.

    Lightning asks for that number once, but packed epochs differ. And a checkpoint counts the batches of its time,
    which may have had another size or number of ranks: when its epoch is continued, the count becomes that of an epoch
    in today's batches of which just as many are left. Otherwise Lightning would leave out the rest, or wait for
    batches that do not come. It also counts an epoch as complete that ``max_steps`` has ended, whose rest would never
    be trained on: a checkpoint brings it, and a second ``fit`` without one, which begins the next epoch, says so.
    """

    def __init__(self, data: FastDataModule) -> None:
        self.data = data
        self._left_out: tuple[int, int] | None = None  # epoch that a stop cut short in the ``fit`` before; its batches

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how many batches the epoch has."""
        (loader,) = self.data.loaders["train"]
        limit = trainer.limit_train_batches
        batches = min(len(loader), limit) if isinstance(limit, int) else int(len(loader) * limit)
        combined = trainer.fit_loop._combined_loader
        if batches != trainer.num_training_batches and combined is not None:
            trainer.fit_loop.max_batches = combined.limits = batches
            if isinstance(trainer.val_check_interval, float):
                trainer.val_check_batch = max(1, int(batches * trainer.val_check_interval))

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save an epoch that ``max_steps`` or an early stop has cut short as one under way: its rest will come."""
        if not _is_cut_short(trainer):
            return
        loop = checkpoint["loops"]["fit_loop"]
        epochs, states = loop["epoch_progress"], loop["state_dict"].get("combined_loader", [])
        under_way = epochs["current"]["started"] - 1
        if len(states) == 1 and states[0]["epoch"] == under_way and states[0]["consumed"]:
            for counts in epochs.values():
                counts["processed"] = counts["completed"] = counts["started"] - 1
            checkpoint["epoch"] = under_way

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Correct the count that was loaded, after the loader has loaded its position."""
        progress = trainer.fit_loop.epoch_loop.batch_progress
        epochs: Any = trainer.fit_loop.epoch_progress.current
        counted: Any = progress.current
        left_out, self._left_out = self._left_out, None
        if not trainer.fit_loop.restarting:
            if left_out is not None and trainer.is_global_zero:
                _say_left_out(self.data, *left_out)
            return
        epochs.completed = epochs.processed  # Lightning does so too, but not under max_steps
        (loader,) = self.data.loaders["train"]
        given = _given(loader, trainer, counted.processed)
        by = given - counted.processed
        if by:
            for name in ("ready", "started", "processed", "completed"):
                setattr(counted, name, getattr(counted, name) + by)
            progress.is_last_batch = given >= trainer.num_training_batches

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note what a stop leaves of its epoch."""
        epochs: Any = trainer.fit_loop.epoch_progress.current
        batches: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        left = int(trainer.num_training_batches) - batches.processed
        self._left_out = (epochs.started - 1, left) if _is_cut_short(trainer) and left > 0 else None


def _is_cut_short(trainer: Trainer) -> bool:
    """Return whether ``max_steps`` or an early stop has ended the training within an epoch."""
    has_stopped = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
    return has_stopped and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch


def _say_left_out(data: FastDataModule, epoch: int, left: int) -> None:
    (loader,) = data.loaders["train"]
    log.warning(
        "%s: epoch %d was stopped with %s left, and Lightning goes on with the next epoch, as with any loader: to "
        "train on the rest, save a checkpoint after the stop, and continue by fit(..., ckpt_path=...)",
        loader.base.store.path,
        epoch,
        counted(left, "batch", "batches"),
    )


def _given(loader: FastLoader, trainer: Trainer, counted: int) -> int:
    """
    Return how many batches of the epoch under way are over, in today's batches, if Lightning has ``counted`` so many.
    """
    if loader.place[0] != trainer.current_epoch:
        return 0
    limit, left = int(trainer.num_training_batches), loader.remaining
    if isinstance(trainer.limit_train_batches, int) and limit < len(loader):  # steps, of whatever size
        return max(min(counted, limit - 1), limit - left)
    return min(len(loader) - left, limit)
