"""LengthBucketSampler as the batch_sampler of a DataLoader under a real Trainer, and shared out by accelerate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from fastio import FastDataset, LengthBucketSampler
from tests.loader.producer.test_tokens import write_tokens
from tests.samplers.test_bucket import batches_of, long_tailed

GUIDE = Path(__file__).parents[2] / "fastio" / "guide" / "text.md"
COUNT, BATCHES = 30, 8  # of 4 samples, the last of 2


class Classifier(BertForSequenceClassification):
    """A model of a few thousand weights; notes which samples, by their first id, each training batch has."""

    def __init__(self) -> None:
        tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        super().__init__(BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=COUNT, **tiny))
        self.seen: list[list[int]] = []

    def forward(self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None, **options: Any) -> Any:
        ids = labels[:, None] + torch.arange(input_ids.shape[1])
        assert torch.equal(input_ids, ids.where(attention_mask, 0))
        self.seen.append(labels.tolist())
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **options)


class StopAfter(TrainerCallback):
    """Ends training behind the checkpoint of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = state.global_step == self.step
        return control


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[FastDataset]:
    """Samples that begin with their own number; what accelerate keeps for the whole process is forgotten afterwards."""
    samples = [number + np.arange(1 + 7 * number % 13) for number in range(COUNT)]
    yield FastDataset(write_tokens(tmp_path / "train.h5", samples))
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """The names that the guide's lines for a Trainer define."""
    block = next(each for each in GUIDE.read_text().split("```python\n") if "BucketTrainer" in each).split("```")[0]
    found: dict[str, Any] = {}
    exec(compile(block, str(GUIDE), "exec"), found)
    return found


def trainer_of(dataset: FastDataset, folder: Path, shown: dict[str, Any], **options: Any) -> Trainer:
    """The guide's Trainer, quiet and on the CPU, with the tiny model."""
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=3,
        **{"save_strategy": "no", **quiet, **options.pop("arguments", {})},
    )
    trainer: Trainer = shown["BucketTrainer"](
        Classifier(), arguments, train_dataset=dataset, data_collator=shown["collate"], **options
    )
    return trainer


def expected_of(dataset: FastDataset) -> list[list[int]]:
    """The batches of three epochs, from the sampler alone."""
    sampler = LengthBucketSampler(dataset.lengths, batch_size=4, seed=42, rank=0, world_size=1)
    return [batch for epoch in range(3) for batch in batches_of(sampler.plan(epoch))]


def test_epochs_are_those_of_the_sampler(dataset: FastDataset, tmp_path: Path, shown: dict[str, Any]) -> None:
    """Each epoch has the batches that the sampler plans for it, another order each, and every sample once."""
    trainer = trainer_of(dataset, tmp_path, shown)
    trainer.train()

    assert expected_of(dataset) == trainer.model.seen
    assert (3 * BATCHES, 3.0) == (trainer.state.global_step, trainer.state.epoch)
    epochs = [sorted(chain(*trainer.model.seen[k * BATCHES : (k + 1) * BATCHES])) for k in range(3)]
    assert [[*range(COUNT)]] * 3 == epochs


@pytest.mark.parametrize("step", [3, 8, 13])
def test_resumed_at_the_next_batch(dataset: FastDataset, tmp_path: Path, shown: dict[str, Any], step: int) -> None:
    """A training that goes on from a checkpoint, within an epoch or between two, has what was left."""
    saving = {"save_strategy": "steps", "save_steps": step}
    first = trainer_of(dataset, tmp_path, shown, arguments=saving, callbacks=[StopAfter(step)])
    first.train()
    second = trainer_of(dataset, tmp_path, shown, arguments=saving)
    second.train(resume_from_checkpoint=True)

    assert len(first.model.seen) == step
    assert expected_of(dataset) == first.model.seen + second.model.seen


@pytest.mark.parametrize("processes", [2, 3, 8])
@pytest.mark.parametrize("size", [{"batch_size": 8}, {"max_tokens": 2048}])
def test_shared_out_by_accelerate(processes: int, size: dict[str, int]) -> None:
    """Over several processes accelerate deals one rank's plan: equally many batches, no sample left out."""
    sampler = LengthBucketSampler(long_tailed(1000), **size, rank=0, world_size=1)
    shares = []
    for process in range(processes):
        sampler.set_epoch(0)
        shares.append(list(BatchSamplerShard(sampler, processes, process)))

    assert len({len(share) for share in shares}) == 1
    assert {*range(1000)} == {sample for share in shares for batch in share for sample in batch}
