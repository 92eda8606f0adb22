"""What the two tasks make of batches: losses against plain formulas, preparation, and batches that are none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate
from fastio.errors import FastioError
from fastio.measure.trainer.run import MODELS
from fastio.measure.trainer.step import Task
from fastio.measure.trainer.text import NextToken

CIFAR: Task = MODELS["cifar10cnn"].task
RESNET: Task = MODELS["resnet50"].task
TEXT = NextToken(shape=(6,), outputs=20)


def images(*shape: int) -> torch.Tensor:
    """uint8 noise."""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_pictures_are_normalised_once() -> None:
    """(value / 255 - mean) / std, in float64 too; what is floating stays."""
    pictures = images(2, 3, 32, 32)
    labels = torch.tensor([1, 2])
    found, same = CIFAR.prepared((pictures, labels), torch.contiguous_format)
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (CIFAR.mean, CIFAR.std))

    torch.testing.assert_close(found.double(), (pictures.double() / 255 - mean) / std, rtol=1e-6, atol=1e-6)
    assert same is labels
    assert CIFAR.prepared((found, labels), torch.contiguous_format)[0] is found


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("given", [torch.channels_last, torch.contiguous_format])
def test_pictures_lie_as_the_network_does(layout: torch.memory_format, given: torch.memory_format) -> None:
    """Whatever the loader's layout."""
    pictures = images(2, 3, 32, 32).contiguous(memory_format=given)
    found, _ = CIFAR.prepared((pictures, torch.zeros(2)), layout)

    assert found.is_contiguous(memory_format=layout)


def test_padding_counts_for_nothing() -> None:
    """The loss of a padded batch is the mean over the tokens of its rows, each computed alone."""
    torch.manual_seed(0)
    network = torch.nn.Embedding(20, 20).double()
    rows = [torch.tensor([1, 2, 3, 4]), torch.tensor([7, 8])]
    lone = [TEXT.loss(network, PadCollate()([row])) for row in rows]

    found = TEXT.loss(network, PadCollate(pad_id=19)(rows))

    torch.testing.assert_close(found, (3 * lone[0] + lone[1]) / 4)


def test_chunks_are_learned_from() -> None:
    """Rows of ChunkCollate have no lengths, and need none."""
    batch = ChunkCollate(4)([torch.arange(7)])
    TEXT.check(batch, "here")

    assert TEXT.loss(torch.nn.Embedding(20, 20), batch).ndim == 0


@pytest.mark.parametrize("name", sorted(MODELS))
def test_random_batches_are_batches(name: str) -> None:
    """Synthetic data passes the check, and a seed names it."""
    task = dataclasses.replace(MODELS[name].task, outputs=7)
    first, second = (task.random_batch(3, torch.Generator().manual_seed(4)) for _ in range(2))
    task.check(first, "here")

    for a, b in zip(*(each.values() if isinstance(each, dict) else each for each in (first, second)), strict=True):
        assert torch.equal(a, b)


PAD = PadCollate()([torch.tensor([1, 2, 3])])
LABELS = torch.tensor([0, 9])


@pytest.mark.parametrize(
    ("task", "batch", "said"),
    [
        (CIFAR, images(2, 3, 32, 32), "labels (B,), got a tensor (2, 3, 32, 32) alone"),
        (CIFAR, PAD, "got a dict with input_ids, attention_mask, lengths"),
        (CIFAR, [images(2, 3, 32, 32)] * 3, "got 3 parts"),
        (CIFAR, (images(2, 1, 32, 32), LABELS), "got (2, 1, 32, 32)"),
        (CIFAR, (images(2, 3, 40, 32), LABELS), "expected pictures of 32x32, got 32x40: add --crop 32"),
        (CIFAR, (images(2, 3, 32, 32), LABELS + 1), "labels from 1 to 10, but the model has 10 classes"),
        (CIFAR, (images(2, 3, 32, 32), LABELS - 1), "labels from -1 to 8"),
        (CIFAR, (images(2, 3, 32, 32), LABELS / 2), "of integers, got torch.float32"),
        (RESNET, (images(2, 3, 70), LABELS), "expected pictures (B, 3, 224, 224)"),
        (TEXT, (images(2, 3, 32, 32), LABELS), "got no token ids"),
        (TEXT, PackCollate()([torch.tensor([1, 2])]), "position_ids, cu_seqlens"),
        (TEXT, PadCollate(side="left")([torch.tensor([1, 2]), torch.tensor([1])]), "padding on the right"),
        (TEXT, PadCollate()([torch.tensor([3])]), "rows of 1 tokens"),
        (TEXT, PadCollate()([torch.tensor([3, 20])]), "token ids from 3 to 20, but a vocabulary of 20"),
    ],
)
def test_batches_that_do_not_fit(task: Task, batch: Any, said: str) -> None:
    """One line, with what was expected and what came, and from where."""
    with pytest.raises(FastioError) as caught:
        task.check(batch, "train.lmdb")

    assert str(caught.value).startswith("train.lmdb: ")
    assert said in str(caught.value)


def test_other_sizes_for_resnet() -> None:
    """A network that pools over any size takes any."""
    RESNET.check((images(2, 3, 70, 90), LABELS), "here")
