"""MixUp and CutMix: pictures, and labels that become soft."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fastio.errors import SchemaError
from fastio.transforms import CutMix, MixUp, Normalize
from fastio.transforms.batch import Recipe

COUNT = 5
LABELS = torch.tensor([2, 0, 1, 2, 3])


def pictures() -> torch.Tensor:
    """Five pictures of random pixels."""
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (COUNT, 3, 8, 10), np.uint8))


def run(mix: Any, images: torch.Tensor, labels: torch.Tensor = LABELS, seed: int = 0) -> list[torch.Tensor]:
    """A batch after the mixing."""
    recipe = Recipe([mix], seed=seed)
    return recipe.run([images, labels], recipe.draw([images, labels], np.arange(COUNT) + 7, 2))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixup(alpha: float) -> None:
    """One share for pictures and labels of a batch; a picture is mixed with the one before, the first with the last."""
    images = pictures()
    mixed, labels = run(MixUp(alpha, num_classes=4), images)
    share = float(labels[1, 0])
    expected = images.double() * share + images.double().roll(1, 0) * (1 - share)

    assert (expected - mixed).abs().max() <= 0.51
    hard = torch.nn.functional.one_hot(LABELS, 4).double()
    assert torch.allclose(hard * share + hard.roll(1, 0) * (1 - share), labels.double(), atol=1e-6)
    assert torch.allclose(torch.ones(COUNT), labels.sum(1))


def test_cutmix() -> None:
    """The rectangle's area is the partner's share of the label."""
    for seed in range(20):
        images = pictures()
        mixed, labels = run(CutMix(num_classes=4), images, seed=seed)
        foreign = (mixed != images).any(1)
        rows, columns = foreign.any(0).any(1), foreign.any(0).any(0)
        box = rows[:, None] & columns

        assert torch.equal(torch.where(box, images.roll(1, 0), images), mixed)
        # A pixel that both have alike hides an edge of the rectangle from this test, in random pixels hardly ever.
        assert float(labels[1, 0]) == pytest.approx(1 - float(box.float().mean()), abs=1e-6)


def test_shares_are_drawn_from_beta() -> None:
    """Mean and spread over many batches are those of Beta(alpha, alpha); another batch has another share."""
    shares = [float(run(MixUp(0.4, num_classes=4), pictures(), seed=seed)[1][1, 0]) for seed in range(400)]

    assert np.mean(shares) == pytest.approx(0.5, abs=0.07)
    assert np.var(shares) == pytest.approx(0.25 / 1.8, abs=0.03)
    assert len(set(shares)) > 390


def test_soft_labels_are_mixed_again() -> None:
    """Labels that are shares already stay (B, classes)."""
    recipe = Recipe([CutMix(), Normalize((0.5,), (0.5,))], seed=0)
    parts = [pictures(), torch.eye(COUNT, 4).softmax(1)]
    images, labels = recipe.run(parts, recipe.draw(parts, np.arange(COUNT), 0))

    assert torch.allclose(torch.ones(COUNT), labels.sum(1))
    assert images.dtype == torch.float32


@pytest.mark.parametrize("both", [[MixUp(), CutMix()], [CutMix(), Normalize((0.5,), (0.5,)), CutMix()]])
def test_a_batch_is_mixed_once(both: list[Any]) -> None:
    """Two mixings in one list would both be applied to every batch: the error says what draws one of them."""
    with pytest.raises(ValueError, match=r"in one list: .* can be mixed only once: keep one, or let .*RandomChoice\("):
        Recipe(both, seed=0)


def test_labels_that_do_not_fit() -> None:
    """A class that is none, labels that are missing and classes that are not counted are said."""
    with pytest.raises(SchemaError, match="labels from 0 to 3"):
        run(MixUp(num_classes=3), pictures())
    with pytest.raises(SchemaError, match="pass num_classes"):
        run(CutMix(), pictures())
    recipe = Recipe([CutMix()], seed=0)
    drawn = recipe.draw([pictures()], np.arange(COUNT), 0)
    with pytest.raises(SchemaError, match="has no labels"):
        recipe.run([pictures()], drawn)


@pytest.mark.parametrize("wrong", [lambda: MixUp(0.0), lambda: CutMix(-1), lambda: MixUp(num_classes=0)])
def test_arguments(wrong: Any) -> None:
    """What makes no sense is refused when it is written."""
    with pytest.raises(ValueError, match="expected"):
        wrong()
