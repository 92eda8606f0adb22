"""MockTrainer: counts what a loader delivers and how long it took."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastio import FastLoader, MockTrainer


def test_it_counts_a_fast_loader(png_store: Path) -> None:
    """All batches and samples of all epochs, and times that fit each other."""
    with FastLoader(png_store, 16) as loader:
        result = MockTrainer().run(loader, epochs=2)

    assert (result.samples, result.batches) == (100, 8)
    assert 0 < result.first_batch_s <= result.seconds
    assert result.cpu_seconds > 0
    assert result.samples_per_s == 100 / result.seconds


@pytest.mark.parametrize(
    ("batches", "samples"),
    [
        (DataLoader(TensorDataset(torch.zeros(5, 2), torch.zeros(5)), batch_size=2), 5),
        ([torch.zeros(3, 1), torch.zeros(2, 1)], 5),
        ([{"image": torch.zeros(4, 1), "label": torch.zeros(4)}], 4),
        ([], 0),
    ],
)
def test_it_takes_any_loader(batches: list[object], samples: int) -> None:
    """Tuples, bare tensors and mappings are counted by their first part; nothing is nothing."""
    result = MockTrainer().run(batches)

    assert result.samples == samples
    assert result.samples_per_s >= 0


def test_a_step_takes_its_time() -> None:
    """With step_ms every batch costs at least that much wall time."""
    result = MockTrainer(step_ms=5).run([torch.zeros(1)] * 4)

    assert result.seconds >= 0.02


def test_a_negative_step_is_refused() -> None:
    """A step cannot take less than nothing."""
    with pytest.raises(ValueError, match="step_ms"):
        MockTrainer(step_ms=-1)
