"""How well an order mixes classes, compared with what was counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.samplers.mixing import WELL_MIXED, Classes, batch_mixing
from fastio.samplers.order import block_order, full_order

PHOTO = 110_000  # bytes


def test_blocks_of_a_sorted_store_are_not_well_mixed() -> None:
    """Photos in class order: a window of the block shuffle holds a few classes only."""
    labels = np.arange(20_000) // 20
    order = block_order(np.full(20_000, PHOTO), seed=0, epoch=0)

    assert batch_mixing(labels, order[: 78 * 256].reshape(78, 256)) < WELL_MIXED / 5


@given(labels=st.lists(st.integers(-3, 40), min_size=1, max_size=300), size=st.integers(1, 400))
def test_what_a_full_shuffle_is_expected_to_have(labels: list[int], size: int) -> None:
    """The mean over many full shuffles is what the formula expects."""
    count, array = len(labels), np.array(labels)
    size = min(size, count)
    orders = [full_order(count, seed=seed, epoch=0)[: count // size * size] for seed in range(40)]
    scores = [batch_mixing(array, order.reshape(-1, size)) for order in orders]

    assert np.mean(scores) == pytest.approx(1, abs=0.1)


def test_unequal_classes() -> None:
    """A class of one sample among a thousand of another: a batch of half of them has it half the time."""
    labels = np.arange(1000) == 7
    scores = [batch_mixing(labels, full_order(1000, seed=seed, epoch=0).reshape(2, 500)) for seed in range(5)]

    assert scores == pytest.approx([1.0] * 5)  # one of the two batches has two classes, the other one: 1.5, as expected


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "S4"])
def test_labels_of_any_kind(dtype: str) -> None:
    """Classes are counted, whatever numbers or names they have."""
    top = 0 if dtype == "S4" else {"i1": -128, "u1": 0, "i8": -(1 << 62), "u8": (1 << 64) - 300}[dtype]
    labels = np.array([top + value for value in range(250)]).astype(dtype)

    assert batch_mixing(labels, np.arange(250).reshape(5, 50)) == pytest.approx(1)
    assert batch_mixing(labels, np.zeros((5, 50), np.int64)) == pytest.approx(1 / 50)


def test_rows_of_several_labels_are_classes() -> None:
    """Multi-label targets: equal rows are one class."""
    rows = np.array([[0, 1], [0, 1], [1, 0], [1, 1]], np.float32)

    assert len(Classes.of(rows).members) == 3
    assert batch_mixing(rows, np.array([[0, 1]])) < batch_mixing(rows, np.array([[0, 2]]))


def test_floating_labels_are_cut_into_classes() -> None:
    """Ages or prices are no classes: what is near in a sorted store counts as one."""
    ages = np.sort(np.random.default_rng(0).normal(size=6400))
    classes = Classes.of(ages)

    assert len(classes.members) == 64
    assert classes.members.tolist() == pytest.approx([100] * 64, abs=2)
    assert classes.mixing(np.arange(6400).reshape(-1, 100)) < 0.1


def test_drift_is_how_far_a_share_goes() -> None:
    """Two classes one after the other: the share of each goes from 0.5 to 0 and 1; mixed ones hardly drift."""
    classes = Classes.of(np.arange(3200) // 1600)

    assert classes.drift(np.arange(3200)) == 0.5
    assert classes.drift(np.arange(3200).reshape(2, 1600).T.reshape(-1)) == 0
    assert classes.drift(full_order(3200, seed=0, epoch=0)) < classes.allowed_drift < 0.3


@pytest.mark.parametrize("labels", [np.empty(0, np.int64), np.empty(0), np.empty((0, 3))])
def test_no_samples(labels: np.ndarray) -> None:  # type: ignore[type-arg]
    """An empty store has nothing to mix."""
    assert Classes.of(labels).drift(np.empty(0, np.int64)) == 0
