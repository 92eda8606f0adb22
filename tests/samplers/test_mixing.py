"""How well the block shuffle mixes classes, compared with what was counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.samplers.mixing import WELL_MIXED, batch_mixing, class_mixing
from fastio.samplers.order import full_order

PHOTO = 110_000  # bytes


def test_a_sorted_store_is_not_well_mixed() -> None:
    """Photos in class order: a window of the block shuffle holds a few classes only."""
    labels = np.arange(20_000) // 20

    assert class_mixing(labels, np.full(20_000, PHOTO), batch_size=256) < WELL_MIXED / 5


def test_a_shuffled_store_is_well_mixed() -> None:
    """The same photos, stored in random order, come as from a full shuffle."""
    labels = (np.arange(20_000) // 20)[full_order(20_000, seed=1, epoch=0)]

    assert class_mixing(labels, np.full(20_000, PHOTO), batch_size=256) == pytest.approx(1, abs=0.01)


def test_a_store_smaller_than_a_window_is_well_mixed() -> None:
    """Ten thousand pictures of 2 kB lie in a single window: the block shuffle is a full one."""
    labels = np.arange(10_000) // 1000

    assert class_mixing(labels, np.full(10_000, 2300), batch_size=64) == pytest.approx(1, abs=0.01)


@given(labels=st.lists(st.integers(-3, 40), min_size=1, max_size=300), batch_size=st.integers(1, 400))
def test_what_a_full_shuffle_is_expected_to_have(labels: list[int], batch_size: int) -> None:
    """One window is a full shuffle: its mean over many seeds is what the formula expects."""
    array, sizes = np.array(labels), np.full(len(labels), 10)
    scores = [class_mixing(array, sizes, batch_size=batch_size, seed=seed) for seed in range(40)]

    assert np.mean(scores) == pytest.approx(1, abs=0.1)


def test_unequal_classes() -> None:
    """A class of one sample among a thousand of another: a batch of half of them has it half the time."""
    labels = np.arange(1000) == 7
    scores = [class_mixing(labels, np.full(1000, 100), batch_size=500, seed=seed) for seed in range(5)]

    assert scores == pytest.approx([1.0] * 5)  # one of the two batches has two classes, the other one: 1.5, as expected


def test_no_samples() -> None:
    """An empty store has nothing to mix."""
    assert class_mixing(np.empty(0, np.int64), np.empty(0, np.int64), batch_size=8) == 1.0


def test_arguments_that_do_not_fit() -> None:
    """Labels and sizes belong together, and a batch has a sample."""
    with pytest.raises(ValueError, match="a label and a size a sample"):
        class_mixing(np.zeros(3, np.int64), np.ones(4, np.int64), batch_size=2)
    with pytest.raises(ValueError, match="batch_size=0"):
        class_mixing(np.zeros(3, np.int64), np.ones(3, np.int64), batch_size=0)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "f8", "S4"])
def test_labels_of_any_kind(dtype: str) -> None:
    """Classes are counted, whatever numbers or names they have."""
    top = 0 if dtype == "S4" else {"i1": -128, "u1": 0, "i8": -(1 << 62), "u8": (1 << 64) - 300, "f8": 0.5}[dtype]
    labels = np.array([top + value for value in range(250)]).astype(dtype)

    assert batch_mixing(labels, np.arange(250).reshape(5, 50)) == pytest.approx(1)
    assert batch_mixing(labels, np.zeros((5, 50), np.int64)) == pytest.approx(1 / 50)
