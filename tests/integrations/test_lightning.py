"""FastDataModule under a real Lightning Trainer: each sample once an epoch, and training goes on where it stopped."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.integrations import lightning
from fastio.integrations.lightning import FastDataModule
from fastio.transforms.batch import ToDtype
from fastio.types.schema import TOKENS, Field
from tests.conftest import encode, pictures, write_store
from tests.integrations.conftest import COUNT

BATCHES = 6  # of 4 samples in an epoch


class Model(pl.LightningModule):
    """Notes the labels of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[tuple[int, list[int]]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        values, labels = batch
        self.seen.append((self.trainer.current_epoch, labels.tolist()))
        return self.layer(values).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)

    def epoch(self, number: int) -> list[int]:
        return [label for epoch, labels in self.seen for label in labels if epoch == number]


class ValidatedModel(Model):
    """Notes those of validation and test too."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: list[list[int]] = []
        self.tested: list[list[int]] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated.append(batch[1].tolist())

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.tested.append(batch[1].tolist())


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """What ends a training in the middle."""


class StopAfter(pl.Callback):
    """Ends training after so many steps, behind a checkpoint."""

    def __init__(self, steps: int, checkpoint: Path) -> None:
        self.steps = steps
        self.checkpoint = checkpoint

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps:
            trainer.save_checkpoint(self.checkpoint)
            raise Interrupted


def trainer_of(**options: Any) -> pl.Trainer:
    """A quiet Trainer on the CPU."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(**{"accelerator": "cpu", "devices": 1, "enable_checkpointing": False, **quiet, **options})


def data_of(store: Path) -> FastDataModule:
    """Shuffled training."""
    return FastDataModule(partial(FastLoader, store, 4, shuffle="full", threads=1))


def all_data_of(store: Path) -> FastDataModule:
    """Training, validation and test from one store."""
    train = partial(FastLoader, store, 4, shuffle="full", threads=1)
    return FastDataModule(train, val=partial(FastLoader, store, 8, threads=1), test=[partial(FastLoader, store, 23)])


def test_each_sample_once_an_epoch(store: Path) -> None:
    """Epochs have every sample once, each in another order, and are those of FastLoader alone."""
    model, data = Model(), data_of(store)
    trainer_of(max_epochs=3).fit(model, data)
    with FastLoader(store, 4, shuffle="full") as loader:
        expected = [[label for _, labels in loader for label in labels.tolist()] for _ in range(3)]

    assert [model.epoch(number) for number in range(3)] == expected
    assert all(list(range(COUNT)) == sorted(epoch) for epoch in expected)
    assert expected[0] != expected[1] != expected[2]


def test_validation_and_test(store: Path) -> None:
    """Validation has every sample in order after each epoch, and the check before training takes none away."""
    model, data = ValidatedModel(), all_data_of(store)
    trainer = trainer_of(max_epochs=2, num_sanity_val_steps=2)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)

    batches = [list(range(8)), list(range(8, 16)), list(range(16, 23))]
    assert [*batches[:2], *batches, *batches] == model.validated
    assert [list(range(23))] == model.tested


@pytest.mark.parametrize("limits", [{"max_epochs": 3}, {"max_steps": 3 * BATCHES, "max_epochs": -1}], ids=str)
@pytest.mark.parametrize("steps", [1, 5, 6, 7, 12])
def test_interrupted_training_goes_on_with_the_next_batch(
    store: Path, tmp_path: Path, limits: dict[str, Any], steps: int
) -> None:
    """What a training does after its checkpoint is what is left, also at the borders of epochs."""
    whole = Model()
    trainer_of(**limits).fit(whole, data_of(store))
    first, second = Model(), Model()
    checkpoint = tmp_path / "last.ckpt"
    with pytest.raises(Interrupted):
        trainer_of(callbacks=[StopAfter(steps, checkpoint)], **limits).fit(first, data_of(store))
    trainer_of(**limits).fit(second, data_of(store), ckpt_path=checkpoint)

    assert [labels for _, labels in whole.seen] == [labels for _, labels in first.seen + second.seen]


class StopAt(pl.Callback):
    """Ends training behind a checkpoint that a hook writes after so many steps."""

    def __init__(self, hook: str, steps: int, checkpoint: Path) -> None:
        self.steps = steps
        self.checkpoint = checkpoint
        setattr(self, hook, self._stop)

    def _stop(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step >= self.steps:
            trainer.save_checkpoint(self.checkpoint)
            raise Interrupted


class Watched(Model):
    """Notes, after each epoch of training, how many batches Lightning has counted, and whether it knew the last."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, bool]] = []

    def on_train_epoch_end(self) -> None:
        progress = self.trainer.fit_loop.epoch_loop.batch_progress
        self.ends.append((progress.current.ready, progress.is_last_batch))


class WatchedAndValidated(Watched, ValidatedModel):
    """Both."""


EPOCHS, STEPS = {"max_epochs": 3}, {"max_epochs": 3, "max_steps": 100}


@pytest.mark.parametrize(
    ("hook", "limits", "before", "after"),
    [
        ("on_train_batch_end", EPOCHS, 4, 2),
        ("on_train_batch_end", STEPS, 2, 5),
        ("on_train_batch_end", EPOCHS, 4, 23),
        ("on_validation_end", EPOCHS, 2, 5),
        ("on_train_epoch_start", EPOCHS, 4, 2),
        ("on_train_epoch_end", EPOCHS, 2, 5),
        ("on_train_epoch_end", STEPS, 4, 4),
    ],
)
def test_other_batch_sizes_continue(
    store: Path, tmp_path: Path, hook: str, limits: dict[str, Any], before: int, after: int
) -> None:
    """Every epoch has each sample once, and ends with a last batch, an evaluation and the right count of batches."""

    def data(batch_size: int) -> FastDataModule:
        val = partial(FastLoader, store, COUNT, threads=1)
        return FastDataModule(partial(FastLoader, store, batch_size, shuffle="full", threads=1), val=val)

    first, second = WatchedAndValidated(), WatchedAndValidated()
    checkpoint, options = tmp_path / "last.ckpt", {"num_sanity_val_steps": 0, **limits}
    with pytest.raises(Interrupted):
        trainer_of(callbacks=[StopAt(hook, 8, checkpoint)], **options).fit(first, data(before))
    trainer_of(**options).fit(second, data(after), ckpt_path=checkpoint)

    for epoch in range(3):
        assert list(range(COUNT)) == sorted(first.epoch(epoch) + second.epoch(epoch))
    assert {(-(-COUNT // after), True)} == set(second.ends)
    assert len(first.validated) + len(second.validated) == 3


def test_a_checkpoint_that_counts_batches(store: Path, tmp_path: Path) -> None:
    """From before states counted samples (version 2): in batches of the same size and of another."""
    checkpoint, first = tmp_path / "last.ckpt", Model()
    with pytest.raises(Interrupted):
        trainer_of(max_epochs=2, callbacks=[StopAfter(8, checkpoint)]).fit(first, data_of(store))
    saved = torch.load(checkpoint, weights_only=False)
    (state,) = saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    state |= {**state.pop("division"), "version": 2, "batch": 2}
    assert state.pop("consumed") == 8
    torch.save(saved, checkpoint)

    for batch_size in (4, 5):
        second, data = Watched(), FastDataModule(partial(FastLoader, store, batch_size, shuffle="full", threads=1))
        trainer_of(max_epochs=2).fit(second, data, ckpt_path=checkpoint)
        assert list(range(COUNT)) == sorted(first.epoch(1) + second.epoch(1))
        assert [(-(-COUNT // batch_size), True)] == second.ends


@pytest.mark.parametrize(("limit", "batch_size", "expected"), [(5, 2, 3), (5, 5, 3), (5, 8, 2), (0.5, 2, 4)])
def test_continued_with_a_limit(store: Path, tmp_path: Path, limit: float, batch_size: int, expected: int) -> None:
    """Of 5 batches, 2 were trained on: 3 follow, or as many as there are; of half of an epoch, what remains."""
    checkpoint, second = tmp_path / "last.ckpt", Watched()
    options: dict[str, Any] = {"max_epochs": 2, "limit_train_batches": limit}
    first = 7 if limit == 5 else 4
    with pytest.raises(Interrupted):
        trainer_of(callbacks=[StopAfter(first, checkpoint)], **options).fit(Model(), data_of(store))
    data = FastDataModule(partial(FastLoader, store, batch_size, shuffle="full", threads=1))
    trainer_of(**options).fit(second, data, ckpt_path=checkpoint)
    assert expected == len(second.seen)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"seed": 1}, "seed is 0 in the state and 1 here"),
        ({"shuffle": False}, "shuffle is 'full' in the state and False here"),
    ],
)
def test_a_checkpoint_of_another_loader_is_refused(
    store: Path, tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    """Its position would mean other samples."""
    checkpoint = tmp_path / "last.ckpt"
    with pytest.raises(Interrupted):
        trainer_of(max_epochs=2, callbacks=[StopAfter(2, checkpoint)]).fit(Model(), data_of(store))
    changed = {"batch_size": 4, "shuffle": "full", "threads": 1, **other}
    with pytest.raises(ValueError, match=said):
        trainer_of(max_epochs=2).fit(
            Model(), FastDataModule(partial(FastLoader, store, **changed)), ckpt_path=checkpoint
        )


def test_validation_in_the_middle_of_an_epoch(store: Path) -> None:
    """Two iterations at once, of training and validation, disturb each other nowhere."""
    model = ValidatedModel()
    trainer_of(max_epochs=1, val_check_interval=2, num_sanity_val_steps=0).fit(model, all_data_of(store))

    assert list(range(COUNT)) == sorted(model.epoch(0))
    assert len(model.validated) == 3 * 3


def test_loaders_built_anew_every_epoch(store: Path) -> None:
    """``reload_dataloaders_every_n_epochs`` closes the old loader and goes on with the next epoch's order."""
    plain, anew = Model(), Model()
    trainer_of(max_epochs=3).fit(plain, data_of(store))
    trainer_of(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(anew, data_of(store))

    assert plain.seen == anew.seen


def test_batches_are_not_copied_on_their_way(store: Path) -> None:
    """A batch that is on the trainer's device already reaches the step as the loader made it."""
    made, stepped = [], []

    class Noted(FastLoader):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                made.append(id(batch[0]))
                yield batch

    class Identity(Model):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            stepped.append(id(batch[0]))
            return super().training_step(batch, batch_idx)

    trainer_of(max_epochs=1).fit(Identity(), FastDataModule(partial(Noted, store, 4)))
    assert len(made) == BATCHES
    assert made == stepped


def test_transforms_of_batches_run_on_the_trainers_device(tmp_path: Path) -> None:
    """The device comes from the trainer, so that a factory may end with transforms of batches."""
    path = write_store(tmp_path / "a.lmdb", [encode(each) for each in pictures(6)])
    types = []

    class Types(Model):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            types.append((batch.dtype, batch.device.type))
            return self.layer(batch[:, :1, 0, 0].float()).mean()

    train = partial(FastLoader, path, 3, transforms=[ToDtype(torch.float16)])
    trainer_of(max_epochs=1).fit(Types(), FastDataModule(train))
    assert [(torch.float16, "cpu")] * 2 == types


def test_a_function_as_recipe_gives_its_sampler_the_ranks(store: Path) -> None:
    """A batch_sampler is built where the ranks are known."""

    def train(*, rank: int, world_size: int, device: torch.device | None) -> FastLoader:
        dataset = FastDataset(store)
        sampler = LengthBucketSampler(dataset.lengths, batch_size=4, rank=rank, world_size=world_size)
        return FastLoader(dataset, batch_sampler=sampler, device=device, rank=rank, world_size=world_size)

    model = Model()
    trainer_of(max_epochs=2).fit(model, FastDataModule(train))
    assert list(range(COUNT)) == sorted(model.epoch(0)) == sorted(model.epoch(1))
    assert model.epoch(0) != model.epoch(1)


def test_epochs_of_different_numbers_of_batches(tmp_path: Path) -> None:
    """Packed epochs differ in that; Lightning, which asks once, neither cuts an epoch nor misses its end."""
    lengths = np.random.default_rng(0).integers(30, 90, 60)
    texts = [np.full(length, index, "<u2").tobytes() for index, length in enumerate(lengths)]
    field = Field("tokens", codec=TOKENS, dtype="<u2", shape=(None,))
    path = write_store(tmp_path / "a.h5", texts, field=field)

    def train(*, rank: int, world_size: int, device: torch.device | None) -> FastLoader:
        dataset = FastDataset(path)
        sampler = PackSampler(dataset.lengths, max_tokens=128, window=10, rank=rank, world_size=world_size)
        return FastLoader(dataset, batch_sampler=sampler, threads=1)

    class Packed(Watched, ValidatedModel):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.seen.append((self.trainer.current_epoch, batch["input_ids"].unique().tolist()))
            return self.layer(torch.ones(1, 1)).mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.validated.append([self.trainer.current_epoch])

    def val(**options: Any) -> FastLoader:
        return FastLoader(path, len(texts), threads=1, **options)

    checkpoint, first, second = tmp_path / "last.ckpt", Packed(), Packed()
    with train(rank=0, world_size=1, device=None) as loader:
        batches = [len(loader) for epoch in range(4) if loader.set_epoch(epoch) is None]
    assert len(set(batches)) > 1
    assert max(batches) > batches[0]
    options = {"max_epochs": 4, "num_sanity_val_steps": 0}
    stop = StopAfter(batches[0] + 3, checkpoint)
    with pytest.raises(Interrupted):
        trainer_of(callbacks=[stop], **options).fit(first, FastDataModule(train, val=val))
    trainer_of(**options).fit(second, FastDataModule(train, val=val), ckpt_path=checkpoint)

    for epoch in range(4):
        assert set(range(60)) == set(first.epoch(epoch) + second.epoch(epoch))
    assert [(count, True) for count in batches] == first.ends + second.ends
    assert [[0], [1], [2], [3]] == first.validated + second.validated


class _Ranked:
    """What FastDataModule asks a Trainer of several processes."""

    overfit_batches = 0

    def __init__(self, rank: int, world_size: int) -> None:
        self.distributed_sampler_kwargs = {"num_replicas": world_size, "rank": rank}
        self.callbacks: list[Any] = []
        self.current_epoch = 0
        self.strategy = ModuleType("strategy")
        self.strategy.root_device = torch.device("cpu")  # type: ignore[attr-defined]


def test_ranks_are_the_trainers(store: Path) -> None:
    """Two ranks have each sample once between them."""
    taken = []
    for rank in range(2):
        data = FastDataModule(partial(FastLoader, store, 4, shuffle="full", uneven="drop"))
        data.trainer = _Ranked(rank, 2)  # type: ignore[assignment]
        taken += [label for _, labels in data.train_dataloader() for label in labels.tolist()]
        data.teardown("fit")

    assert len(set(taken)) == len(taken) == COUNT - 1


def test_a_recipe_that_keeps_the_ranks_to_itself_is_refused(store: Path) -> None:
    """A loader of other ranks would lose samples or double them."""

    def train(*, rank: int, world_size: int, device: torch.device | None) -> FastLoader:
        return FastLoader(store, 4, rank=0, world_size=1)

    data = FastDataModule(train)
    data.trainer = _Ranked(1, 2)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="for rank 0 of 1, but this process is rank 1 of 2; pass rank"):
        data.train_dataloader()


def test_overfitting_is_refused_with_a_way(store: Path) -> None:
    """Lightning would build another loader from this one."""
    with pytest.raises(ValueError, match=r"overfit_batches=2: .* limit_train_batches=2"):
        trainer_of(max_epochs=1, overfit_batches=2).fit(Model(), data_of(store))


def test_without_data(store: Path) -> None:
    """What is missing is named by Lightning; validation may be missing."""
    trainer_of(max_epochs=1).fit(Model(), FastDataModule(partial(FastLoader, store, 4)))
    with pytest.raises(MisconfigurationException, match="train_dataloader"):
        trainer_of(max_epochs=1).fit(Model(), FastDataModule())
    with pytest.raises(MisconfigurationException, match="test_dataloader"):
        trainer_of().test(ValidatedModel(), FastDataModule(), verbose=False)


def test_loaders_are_closed_and_still_tell(store: Path, tmp_path: Path) -> None:
    """After training, and after an exception in it, threads have ended; figures are still there."""
    data = data_of(store)
    trainer_of(max_epochs=1).fit(Model(), data)
    (loader,) = data.loaders["train"]
    assert loader.stats.samples == COUNT
    with pytest.raises(ValueError, match="closed"):
        iter(loader)
    failed = data_of(store)
    with pytest.raises(Interrupted):
        trainer_of(max_epochs=1, callbacks=[StopAfter(1, tmp_path / "a.ckpt")]).fit(Model(), failed)
    with pytest.raises(ValueError, match="closed"):
        iter(failed.loaders["train"][0])


def test_by_hand_and_pickled(store: Path) -> None:
    """Without a trainer a loader can be looked at; spawned processes get the factories."""
    data = data_of(store)
    assert next(iter(data.train_dataloader()))[1].shape == (4,)
    copy = pickle.loads(pickle.dumps(data))
    assert copy.loaders == {}
    assert len(copy.train_dataloader()) == BATCHES
    for each in (data, copy):
        each.teardown("fit")


def test_a_loader_alone_under_lightning(store: Path) -> None:
    """``fit(model, FastLoader(...))`` is as good in one process: no epoch is lost to a check, none repeated."""
    model, expected = Model(), Model()
    trainer_of(max_epochs=2).fit(expected, data_of(store))
    with FastLoader(store, 4, shuffle="full") as loader:
        trainer_of(max_epochs=2).fit(model, loader)

    assert expected.seen == model.seen


@pytest.mark.parametrize(
    ("loaded", "installed", "expected"),
    [
        (["lightning.pytorch"], ["pytorch_lightning", "lightning"], "lightning.pytorch"),
        (["pytorch_lightning"], ["pytorch_lightning", "lightning"], "pytorch_lightning"),
        (["pytorch_lightning", "lightning.pytorch"], ["pytorch_lightning", "lightning"], "pytorch_lightning"),
        ([], ["lightning"], "lightning.pytorch"),
        ([], ["pytorch_lightning", "lightning"], "pytorch_lightning"),
        ([], [], "pytorch_lightning"),
    ],
)
def test_which_of_the_two_packages(
    monkeypatch: pytest.MonkeyPatch, loaded: list[str], installed: list[str], expected: str
) -> None:
    """The package that the program has imported, or the one that is installed."""
    monkeypatch.delitem(sys.modules, "pytorch_lightning")
    for name in loaded:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(lightning, "find_spec", lambda name: name if name in installed else None)

    assert lightning._package() == expected
