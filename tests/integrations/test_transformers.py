"""use_loaders under a real Trainer: each sample once an epoch, resumed at the next batch, all samples evaluated."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.integrations.transformers import as_inputs, language_model_inputs, use_loaders
from fastio.samplers.pack import Packing
from fastio.types.schema import RAW, TOKENS, Field
from tests.conftest import write_store
from tests.dataset.streams import documents_of, stream_of
from tests.integrations.conftest import COUNT

BATCHES = 6  # of 4 samples in an epoch


class Model(torch.nn.Module):
    """Notes the labels of each batch; its logits are the samples themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.seen.append(labels.tolist())
        return {"loss": self.layer(pixel_values).square().mean() * 1e-4, "logits": pixel_values}


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """What ends a training in the middle."""


class StopAfter(TrainerCallback):
    """Ends training behind the checkpoint of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Interrupted


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    """A quiet training on the CPU."""
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    return TrainingArguments(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": 4,
            "per_device_eval_batch_size": 8,
            "num_train_epochs": 3,
            "save_strategy": "no",
            **quiet,
            **options,
        }
    )


def trainer_of(store: Path, folder: Path, callbacks: Any = (), **options: Any) -> Trainer:
    """A Trainer over the store, shuffled."""
    trainer = Trainer(Model(), arguments(folder, **options), eval_dataset=FastDataset(store), callbacks=list(callbacks))
    use_loaders(
        trainer,
        train=partial(FastLoader, store, 4, shuffle="full", threads=1),
        evaluate=partial(FastLoader, store, 8, threads=1),
    )
    return trainer


@pytest.fixture(scope="module")
def expected(store: Path) -> list[list[int]]:
    """The batches of three epochs, from FastLoader alone."""
    with FastLoader(store, 4, shuffle="full") as loader:
        return [labels.tolist() for _ in range(3) for _, labels in loader]


def test_each_sample_once_an_epoch(store: Path, tmp_path: Path, expected: list[list[int]]) -> None:
    """Epochs are those of FastLoader, with the Trainer's counts of steps and epochs."""
    trainer = trainer_of(store, tmp_path)
    trainer.train()

    assert expected == trainer.model.seen
    assert (3 * BATCHES, 3.0) == (trainer.state.global_step, trainer.state.epoch)
    for epoch in range(3):
        part = expected[epoch * BATCHES : (epoch + 1) * BATCHES]
        assert list(range(COUNT)) == sorted(chain(*part))


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("step", [1, 3, 6, 8])
def test_resumed_at_the_next_batch(
    store: Path, tmp_path: Path, expected: list[list[int]], step: int, accumulated: int
) -> None:
    """Training from a checkpoint has what was left, and decodes nothing that it skips."""
    options = {"save_strategy": "steps", "save_steps": step, "gradient_accumulation_steps": accumulated}
    first = trainer_of(store, tmp_path, [StopAfter(step)], **options)
    with pytest.raises(Interrupted):
        first.train()
    second = trainer_of(store, tmp_path, **options)
    second.train(resume_from_checkpoint=True)

    assert expected == first.model.seen + second.model.seen
    loader = second.callback_handler.train_dataloader.loader
    assert sum(map(len, second.model.seen)) == loader.stats.samples


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "seed": ({"seed": 1}, {}, "seed is 0 in the state and 1 here"),
    "accumulation": (
        {},
        {"gradient_accumulation_steps": 2},
        "3 batches are left of an epoch of 6, and the Trainer accumulates 2 .* gradient_accumulation_steps=1",
    ),
}


def saved_at(step: int, store: Path, folder: Path) -> None:
    """A training that ended behind the checkpoint of a step."""
    with pytest.raises(Interrupted):
        trainer_of(store, folder, [StopAfter(step)], save_strategy="steps", save_steps=step).train()


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_loader_is_refused(store: Path, tmp_path: Path, other: str) -> None:
    """The step that was saved names other samples there: they would be trained on twice, or never."""
    saved_at(3, store, tmp_path)
    loading, training, said = OTHERS[other]

    def resumed(**options: Any) -> Trainer:
        trainer = Trainer(Model(), arguments(tmp_path, **training, **options))
        chosen = {"batch_size": 4, "shuffle": "full", "threads": 1, **loading}
        use_loaders(trainer, train=partial(FastLoader, store, **chosen))
        trainer.train(resume_from_checkpoint=True)
        return trainer

    with pytest.raises(ValueError, match=f"checkpoint of step 3: .*{said}.*ignore_data_skip=True"):
        resumed()
    assert sum(map(len, resumed(ignore_data_skip=True, num_train_epochs=1).model.seen)) <= COUNT


def test_a_checkpoint_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    """Of as many samples, which are others."""
    saved_at(3, store, tmp_path / "out")
    values = [np.float32([index]).tobytes() for index in range(COUNT)]
    field = Field("number", RAW, "<f4", (1,))
    other = write_store(tmp_path / "b.h5", values, np.arange(COUNT)[::-1].copy(), field=field)
    with pytest.raises(ValueError, match=r"checkpoint of step 3: .*store is"):
        trainer_of(other, tmp_path / "out").train(resume_from_checkpoint=True)


def resized(store: Path, folder: Path, batch_size: int, callbacks: Any = (), **options: Any) -> Trainer:
    """A Trainer over the store, shuffled, with batches of another size, which saves each step."""
    saving = {"save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": batch_size}
    trainer = Trainer(Model(), arguments(folder, **saving, **options), callbacks=list(callbacks))
    use_loaders(trainer, train=partial(FastLoader, store, batch_size, shuffle="full", threads=1))
    return trainer


CHAINS = [[(4, 1), (2, 4), (3, 6)], [(2, 13), (4, 7), (8, 0)], [(4, 6), (23, 0)], [(4, 12), (2, 0)]]


@pytest.mark.parametrize("chain_of", CHAINS, ids=str)
def test_other_batch_sizes_continue(
    store: Path, tmp_path: Path, expected: list[list[int]], chain_of: list[tuple[int, int]]
) -> None:
    """
    Each epoch has every sample once, in the same order, whatever the sizes of batches; the last step is the epochs'.

    A chain names batch sizes, and after how many of today's steps training ends (0: not).
    """
    seen: list[int] = []
    checkpoint: Any = None
    for number, (batch_size, step) in enumerate(chain_of):
        trainer = resized(store, tmp_path / str(number), batch_size, [StopAfter(step)] if step else [])
        with pytest.raises(Interrupted) if step else nullcontext():
            trainer.train(resume_from_checkpoint=checkpoint)
        seen += chain(*trainer.model.seen)
        checkpoint = str(tmp_path / str(number) / f"checkpoint-{step}")
        last = trainer

    if chain_of[-1][1]:
        last = resized(store, tmp_path / "last", 4)
        last.train(resume_from_checkpoint=checkpoint)
        seen += chain(*last.model.seen)
    assert list(chain(*expected)) == seen
    steps = -(-COUNT // last.args.per_device_train_batch_size) * 3
    assert (steps, 3.0) == (last.state.global_step, last.state.epoch) == (last.state.max_steps, 3.0)


@pytest.mark.parametrize(("before", "after", "accumulated", "done"), [(4, 2, 2, 6), (2, 4, 1, 3), (4, 4, 3, 2)])
def test_the_learning_rate_continues_in_todays_steps(
    store: Path, tmp_path: Path, before: int, after: int, accumulated: int, done: int
) -> None:
    """It falls to nothing at the end of the last epoch, from where a training in these batches would be."""
    with pytest.raises(Interrupted):
        resized(store, tmp_path, before, [StopAfter(6)], learning_rate=1.0).train()
    rates: list[float] = []

    class Rates(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, lr_scheduler: Any = None, **_: Any) -> None:
            rates.append(lr_scheduler.get_last_lr()[0])

    options = {"learning_rate": 1.0, "gradient_accumulation_steps": accumulated}
    second = resized(store, tmp_path, after, [Rates()], **options)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))

    steps = second.state.max_steps
    assert pytest.approx([1 - step / steps for step in range(done, steps)]) == rates


def test_a_checkpoint_that_counts_batches(store: Path, tmp_path: Path, expected: list[list[int]]) -> None:
    """From before positions were saved (state version 2): in batches of the same size, others are refused."""
    saved_at(8, store, tmp_path)
    path = tmp_path / "checkpoint-8" / "trainer_state.json"
    state = json.loads(path.read_text())
    attributes = state["stateful_callbacks"]["ResumedEpoch"]["attributes"]
    del attributes["position"]
    old = attributes["trained_on"]
    old |= {**old.pop("division"), "version": 2, "batch": 0}
    del old["consumed"]
    path.write_text(json.dumps(state))
    second = trainer_of(store, tmp_path)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))

    assert expected[8:] == second.model.seen
    with pytest.raises(ValueError, match=r"checkpoint of step 8: .* batch_size is 4 in the state and 2 here"):
        resized(store, tmp_path, 2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))


@pytest.mark.parametrize(("before", "after"), [("mixed", "longest_first"), ("longest_first", "mixed")])
def test_a_checkpoint_that_counts_other_packs_is_refused(
    store: Path, tmp_path: Path, before: Packing, after: Packing
) -> None:
    """A number of packs means other samples where they are packed in another way."""

    def trainer(packing: Packing, callbacks: Any = (), **options: Any) -> Trainer:
        def train(rank: int, world_size: int, device: Any) -> FastLoader:
            sampler = PackSampler([1] * COUNT, max_tokens=4, packing=packing, rank=rank, world_size=world_size)
            return FastLoader(store, batch_sampler=sampler, threads=1)

        made = Trainer(Model(), arguments(tmp_path, **options), callbacks=list(callbacks))
        use_loaders(made, train=train)
        return made

    with pytest.raises(Interrupted):
        trainer(before, [StopAfter(3)], save_strategy="steps", save_steps=3).train()
    path = tmp_path / "checkpoint-3" / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["ResumedEpoch"]["attributes"]["position"]
    path.write_text(json.dumps(state))

    with pytest.raises(ValueError, match=r"checkpoint of step 3: .* packing is .* in the state and .* here"):
        trainer(after).train(resume_from_checkpoint=True)


def test_a_trainer_that_cannot_be_told_refuses(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: list[list[int]]
) -> None:
    """A version of transformers without the place where steps are translated: only the same batches continue."""
    saved_at(3, store, tmp_path)
    monkeypatch.setattr("fastio.integrations.transformers.count_in_todays_steps", lambda *_: None)
    with pytest.raises(
        ValueError, match=r"checkpoint of step 3 is step 6 in today's batches, .* the batch size of the"
    ):
        resized(store, tmp_path, 2).train(resume_from_checkpoint=True)
    second = trainer_of(store, tmp_path)
    second.train(resume_from_checkpoint=True)
    assert expected[3:] == second.model.seen


def test_a_checkpoint_from_before_is_believed(store: Path, tmp_path: Path, expected: list[list[int]]) -> None:
    """One that says nothing about its loader, as the Trainer writes it without use_loaders, can be gone on with."""
    saved_at(3, store, tmp_path)
    path = tmp_path / "checkpoint-3" / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["ResumedEpoch"]
    path.write_text(json.dumps(state))
    second = trainer_of(store, tmp_path, save_strategy="steps", save_steps=5)
    second.train(resume_from_checkpoint=True)

    assert expected[3:] == second.model.seen


def test_trained_twice(store: Path, tmp_path: Path, expected: list[list[int]]) -> None:
    """Another training begins anew, and closes the loader of the first."""
    trainer = trainer_of(store, tmp_path)
    trainer.train()
    first = trainer.callback_handler.train_dataloader
    trainer.train()

    assert expected * 2 == trainer.model.seen
    with pytest.raises(ValueError, match="closed"):
        next(iter(first))


def test_evaluation_has_every_sample_once(store: Path, tmp_path: Path) -> None:
    """Predictions are those of all samples in order, at each evaluation; another data set goes the Trainer's way."""
    trainer = trainer_of(store, tmp_path, num_train_epochs=2, eval_strategy="epoch")
    results = []
    trainer.compute_metrics = lambda found: results.append(found) or {}  # type: ignore[func-returns-value]
    trainer.train()

    assert len(results) == 2
    for found in results:
        assert list(range(COUNT)) == found.label_ids.tolist() == found.predictions[:, 0].tolist()
    other = [{"pixel_values": torch.ones(1), "labels": 7}] * 3
    trainer.evaluate(other)
    assert [7, 7, 7] == results[-1].label_ids.tolist()


def test_batch_sizes_must_agree(store: Path, tmp_path: Path) -> None:
    """The Trainer counts samples by its arguments."""
    trainer = trainer_of(store, tmp_path, per_device_train_batch_size=8, per_device_eval_batch_size=4)
    with pytest.raises(ValueError, match=r"batches of 4, but .* count 8 \(per_device_train_batch_size"):
        trainer.train()
    with pytest.raises(ValueError, match=r"batches of 8, but .* count 4 \(per_device_eval_batch_size"):
        trainer.evaluate()


def test_a_language_model_from_buckets(tmp_path: Path) -> None:
    """Sequences of many lengths, padded in buckets, each once an epoch; the loss passes over padding."""
    field = Field("tokens", codec=TOKENS, dtype="<u2", shape=(None,))
    texts = [np.full(1 + index % 7, 1 + index, "<u2").tobytes() for index in range(COUNT)]
    path = write_store(tmp_path / "a.h5", texts, field=field)
    seen: list[list[int]] = []

    def train(*, rank: int, world_size: int, device: torch.device | None) -> FastLoader:
        dataset = FastDataset(path)
        sampler = LengthBucketSampler(dataset.lengths, batch_size=4, rank=rank, world_size=world_size)
        return FastLoader(dataset, batch_sampler=sampler, device=device)

    class Noted(GPT2LMHeadModel):
        def forward(self, input_ids: Any = None, labels: Any = None, **options: Any) -> Any:
            seen.append(input_ids[:, 0].tolist())
            assert torch.equal(labels, input_ids.masked_fill(~options["attention_mask"], -100))
            return super().forward(input_ids=input_ids, labels=labels, **options)

    model = Noted(GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    trainer = Trainer(model, arguments(tmp_path / "out", num_train_epochs=2))
    use_loaders(trainer, train=train, inputs=language_model_inputs)
    trainer.train()

    epochs = [list(chain(*seen[:BATCHES])), list(chain(*seen[BATCHES:]))]
    assert all(list(range(1, COUNT + 1)) == sorted(epoch) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_longer_epochs_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The Trainer takes as many batches of each epoch as the first has; of packed epochs, some have more."""
    lengths = np.random.default_rng(0).integers(30, 90, 60)
    texts = [np.full(length, index, "<u2").tobytes() for index, length in enumerate(lengths)]
    path = write_store(tmp_path / "a.h5", texts, field=Field("tokens", codec=TOKENS, dtype="<u2", shape=(None,)))

    def train(*, rank: int, world_size: int, device: torch.device | None) -> FastLoader:
        dataset = FastDataset(path)
        sampler = PackSampler(dataset.lengths, max_tokens=128, window=10, rank=rank, world_size=world_size)
        return FastLoader(dataset, batch_sampler=sampler, threads=1)

    def inputs(batch: Any) -> Any:
        return {"pixel_values": torch.ones(1, 1), "labels": batch["input_ids"][:, 0]}

    with train(rank=0, world_size=1, device=None) as loader:
        batches = [len(loader) for epoch in range(4) if loader.set_epoch(epoch) is None]
    longer = [epoch for epoch in range(4) if batches[epoch] > batches[0]]
    assert longer
    trainer = Trainer(Model(), arguments(tmp_path / "out", num_train_epochs=4))
    use_loaders(trainer, train=train, inputs=inputs)
    trainer.train()

    warned = [record.getMessage() for record in caplog.records if "will not come" in record.getMessage()]
    assert len(longer) == len(warned)
    for epoch, message in zip(longer, warned, strict=True):
        assert f"epoch {epoch} has {batches[epoch]} batches, but the trainer takes {batches[0]}" in message


def test_inputs_of_a_batch() -> None:
    """Pairs get names, tokens lose their lengths, anything else is named."""
    assert {"pixel_values": 1, "labels": 2} == as_inputs((1, 2))
    assert {"input_ids": 1} == as_inputs({"input_ids": 1, "lengths": 2})
    with pytest.raises(TypeError, match=r"a batch is a Tensor, .* as inputs="):
        as_inputs(torch.zeros(3))


def test_inputs_of_windows(tmp_path: Path) -> None:
    """Windows of a stream need no attention mask; nothing foretells the first id of a document."""
    stream = stream_of(tmp_path, documents_of((4, 3, 9)), "megatron")
    (cross,) = FastLoader(stream.windows(8), 2)
    inputs = language_model_inputs(cross)
    assert ["input_ids", "labels"] == list(inputs)
    assert torch.equal(cross["input_ids"], inputs["labels"])
    (masked,) = FastLoader(stream.windows(8, documents="mask"), 2)
    inputs = language_model_inputs(masked)
    assert ["input_ids", "position_ids", "labels"] == list(inputs)
    assert [[True, False, False, False, True, False, False, True], [True, *[False] * 7]] == (
        inputs["labels"] == -100
    ).tolist()
    with pytest.raises(ValueError, match="which ids count"):
        language_model_inputs({**masked, "labels": masked["input_ids"]})
