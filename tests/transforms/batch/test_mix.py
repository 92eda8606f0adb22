"""MixUp and CutMix: pictures, labels that become soft, and who is mixed with whom."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastio import FastLoader, Writer
from fastio.errors import SchemaError
from fastio.transforms import Compose, CutMix, MixUp, Normalize, OneOf, RandomApply, RandomInvert
from fastio.transforms.batch import Recipe
from fastio.transforms.batch.batch_transform import Pictures
from fastio.transforms.batch.mix import partners

COUNT = 5
LABELS = torch.tensor([2, 0, 1, 2, 3])


def pictures() -> torch.Tensor:
    """Five pictures of random pixels."""
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (COUNT, 3, 8, 10), np.uint8))


def partner_of(mix: Any, seed: int = 0) -> torch.Tensor:
    """The partner of each sample in ``run``."""
    images = pictures()
    recipe = Recipe([mix], seed=seed)
    partner: torch.Tensor = recipe.draw([images, LABELS], np.arange(COUNT) + 7, 2)[0]["partner"]
    return partner


def run(mix: Any, images: torch.Tensor, labels: torch.Tensor = LABELS, seed: int = 0) -> list[torch.Tensor]:
    """A batch after the mixing."""
    recipe = Recipe([mix], seed=seed)
    return recipe.run([images, labels], recipe.draw([images, labels], np.arange(COUNT) + 7, 2))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixup(alpha: float) -> None:
    """One share for pictures and labels of a batch; each is mixed with its partner."""
    images, partner = pictures(), partner_of(MixUp(alpha, num_classes=4))
    mixed, labels = run(MixUp(alpha, num_classes=4), images)
    hard = torch.nn.functional.one_hot(LABELS, 4).double()
    # A row whose partner has another class says the share.
    share = next(float(labels[row, LABELS[row]]) for row in range(COUNT) if LABELS[row] != LABELS[partner[row]])
    expected = images.double() * share + images.double()[partner] * (1 - share)

    assert (expected - mixed).abs().max() <= 0.51
    assert torch.allclose(hard * share + hard[partner] * (1 - share), labels.double(), atol=1e-6)
    assert torch.allclose(torch.ones(COUNT), labels.sum(1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_blending_a_few_rows_at_a_time(dtype: torch.dtype, layout: torch.memory_format) -> None:
    """Large pictures, which are blended in parts, are equal to the bit to the whole batch blended at once."""
    images = torch.randint(0, 256, (7, 3, 160, 180)).to(dtype).contiguous(memory_format=layout)
    share, partner = torch.tensor(0.3), torch.tensor([3, 0, 1, 2, 6, 4, 5])
    whole = images.float() * share + images.float()[partner] * (1 - share)
    parameters = {"share": share, "partner": partner}

    mixed = MixUp(num_classes=2).run(Pictures(images, torch.arange(7) % 2), parameters).images

    assert torch.equal((whole if dtype == torch.float32 else whole.round()).to(dtype), mixed)
    assert mixed.is_contiguous(memory_format=layout)


def test_cutmix() -> None:
    """The rectangle's area is the partner's share of the label."""
    for seed in range(20):
        images, partner = pictures(), partner_of(CutMix(num_classes=4), seed)
        mixed, labels = run(CutMix(num_classes=4), images, seed=seed)
        foreign = (mixed != images).any(1)
        rows, columns = foreign.any(0).any(1), foreign.any(0).any(0)
        box = rows[:, None] & columns

        assert torch.equal(torch.where(box, images[partner], images), mixed)
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
    with pytest.raises(ValueError, match=r"in one list: .* can be mixed only once: keep one, or write OneOf\(\["):
        Recipe(both, seed=0)


@given(samples=st.lists(st.integers(0, 5), min_size=1, max_size=24), number=st.floats(0, 1, exclude_max=True))
def test_partners(samples: list[int], number: float) -> None:
    """Each row is partner once, and its own sample is only as often as the counts of samples force it."""
    rows = np.array(samples)
    most = int(np.bincount(rows).max())
    found = partners(rows, number, count=3)

    assert all(list(range(len(rows))) == sorted(column.tolist()) for column in found.T)
    expected = max(2 * most - len(rows), 0)
    assert [expected] * 3 == (rows[found] == rows[:, None]).sum(0).tolist()
    assert np.array_equal(found, partners(rows, number, count=3))


def test_three_partners_differ() -> None:
    """In a batch of four samples, the three partners of each are the other three; other numbers give other cycles."""
    found = partners(np.arange(4), 0.3, count=3)
    assert all({0, 1, 2, 3} == {row, *others} for row, others in enumerate(found.tolist()))
    assert len({tuple(partners(np.arange(9), number)[:, 0].tolist()) for number in np.linspace(0, 0.9, 10)}) > 5


def test_one_of_two_mixes() -> None:
    """Each batch gets one of the two, by its weight, with the numbers of the first sample alone."""
    both = OneOf([MixUp(num_classes=4), CutMix(num_classes=4)], p=[3, 1])
    images, counts = pictures(), {0: 0, 1: 0}
    for seed in range(200):
        recipe = Recipe([both], seed=seed)
        drawn = recipe.draw([images, LABELS], np.arange(COUNT) + 7, 2)
        counts[drawn[0]["chosen"]] += 1
        if seed < 5:
            mixed, labels = recipe.run([images, LABELS], drawn)
            alone = both.transforms[drawn[0]["chosen"]].run(Pictures(images, LABELS), drawn[0]["own"])
            assert torch.equal(alone.images, mixed)
            assert torch.allclose(torch.ones(COUNT), labels.sum(1))
        others = recipe.draw([images, LABELS], np.array([7, 90, 91, 92, 93]), 2)
        assert (drawn[0]["chosen"], drawn[0]["own"]["share"]) == (others[0]["chosen"], others[0]["own"]["share"])
    assert 120 < counts[0] < 180


@pytest.mark.parametrize("alone", [MixUp(), OneOf([MixUp(), CutMix()])])
def test_a_choice_is_a_mix_too(alone: Any) -> None:
    """A second mix beside a choice is refused; so are mixes among colours, and within RandomApply."""
    with pytest.raises(ValueError, match="can be mixed only once"):
        Recipe([OneOf([MixUp(), CutMix()]), alone], seed=0)
    with pytest.raises(TypeError, match=r"works on whole batches: it takes ColorJitter.* or MixUp and CutMix alone"):
        OneOf([RandomInvert(), alone])
    with pytest.raises(TypeError, match="works on whole batches"):
        RandomApply([alone])
    with pytest.raises(TypeError, match="works on batches"):
        Compose([alone])


@pytest.mark.parametrize("options", [{"repeats": 3}, {"sampler": np.repeat(np.arange(12), 3).tolist()}])
def test_repeats_are_not_mixed_with_themselves(tmp_path: Path, options: dict[str, Any]) -> None:
    """Neither views of one sample, one behind the other, nor an index that comes several times: labels show it."""
    with Writer(tmp_path / "x.lmdb", {"image": "uint8[8,8,3]", "label": "label"}) as writer:
        for number in range(12):
            writer.write({"image": np.full((8, 8, 3), number * 20, np.uint8), "label": number})
    with FastLoader(tmp_path / "x.lmdb", 6, transforms=[MixUp(num_classes=12)], **options) as loader:
        for _, labels in loader:
            assert {2} == set((labels > 0).sum(1).tolist())


def test_labels_that_do_not_fit() -> None:
    """A class that is none, labels that are missing and classes that are not counted are said."""
    with pytest.raises(SchemaError, match=r"labels from 0 to 3, expected 0 to 2: pass the number of all classes"):
        run(MixUp(num_classes=3), pictures())
    with pytest.raises(SchemaError, match="pass num_classes"):
        run(CutMix(), pictures())
    recipe = Recipe([CutMix()], seed=0)
    drawn = recipe.draw([pictures()], np.arange(COUNT), 0)
    with pytest.raises(SchemaError, match="has no labels"):
        recipe.run([pictures()], drawn)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MixUp(0.0),
        lambda: CutMix(-1),
        lambda: MixUp(math.inf),
        lambda: MixUp(5e-324),
        lambda: MixUp(num_classes=0),
        lambda: MixUp(num_classes=2.5),  # type: ignore[arg-type]
        lambda: MixUp(num_classes="3"),  # type: ignore[arg-type]
        lambda: OneOf([MixUp(), CutMix()], p=[math.inf, 1.0]),
        lambda: OneOf([MixUp(), CutMix()], p="ab"),  # type: ignore[arg-type]
        lambda: OneOf([MixUp(), CutMix()], p=0.5),  # type: ignore[arg-type]
        lambda: OneOf([MixUp(), CutMix()], p=[0, 0]),
    ],
)
def test_arguments(wrong: Any) -> None:
    """What makes no sense is refused when it is written."""
    with pytest.raises(ValueError, match="expected"):
        wrong()
