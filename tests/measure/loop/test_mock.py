"""MockTrainer counts what a loader delivers and how long it took; MockLoader serves one batch for ever."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastio import FastLoader
from fastio.measure import MockLoader, MockTrainer
from fastio.measure.loop.mock import MockResult


class Pair(NamedTuple):
    """A batch with names."""

    first: torch.Tensor
    second: Any


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """All tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (tuple, list, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from tensors(part)


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


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(6).reshape(2, 3),
        (torch.ones(2, 3), torch.zeros(2)),
        [torch.ones(2, 3), "name"],
        {"image": torch.ones(2, 3), "text": ["a", "b"]},
        Pair(torch.ones(2), {"deep": (torch.zeros(2),)}),
    ],
)
def test_one_batch_is_served_for_ever(batch: Any) -> None:
    """The same values, the same containers, and no tensor that the loader still owns."""
    served = list(itertools.islice(MockLoader(batch), 3))

    assert all(each is served[0] for each in served)
    assert type(batch) is type(served[0])
    assert str(batch) == str(served[0])
    owned = {tensor.data_ptr() for tensor in tensors(batch)}
    assert owned.isdisjoint(tensor.data_ptr() for tensor in tensors(served[0]))


def test_a_loader_gives_its_first_batch(png_store: Path) -> None:
    """Of a loader the first batch is kept, in its memory format, and its ring gets the buffer back."""
    with FastLoader(png_store, 16, layout="channels_last") as loader:
        images, labels = next(iter(loader))
        mock = MockLoader(loader, batches=4)
    served = list(mock)

    assert len(served) == len(mock) == 4
    assert torch.equal(images, served[3][0])
    assert torch.equal(labels, served[3][1])
    assert served[0][0].is_contiguous(memory_format=torch.channels_last)
    assert MockTrainer().run(mock).samples == 64


def test_for_ever_has_no_length() -> None:
    """len() of an endless loader is an error that names the way out."""
    with pytest.raises(TypeError, match="batches="):
        len(MockLoader(torch.zeros(1)))


def test_an_empty_loader_has_no_batch() -> None:
    """There is nothing to serve."""
    with pytest.raises(ValueError, match="empty"):
        MockLoader(iter(()))


def test_no_batches_are_refused() -> None:
    """An epoch of nothing measures nothing."""
    with pytest.raises(ValueError, match="batches=0"):
        MockLoader(torch.zeros(1), batches=0)


def test_a_run_ends_in_time() -> None:
    """With seconds, an endless loader is left after at least one batch."""
    result = MockTrainer().run(MockLoader(torch.zeros(3, 1)), seconds=0.0)

    assert (result.batches, result.samples) == (1, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_batch_is_kept_on_the_device() -> None:
    """The tensors lie on the device, the rest is as it was."""
    served = next(iter(MockLoader((torch.ones(2), "name"), "cuda")))

    assert (served[0].device.type, served[1]) == ("cuda", "name")


def test_epochs_without_end_need_a_time() -> None:
    """Otherwise the run would never end; an empty loader ends it at once."""
    with pytest.raises(ValueError, match="seconds="):
        MockTrainer().run([1], epochs=None)

    assert MockTrainer().run([], epochs=None, seconds=60).batches == 0


def test_the_steady_rate_leaves_the_first_batch_out() -> None:
    """What the first batch took belongs to the start."""
    steady = MockResult(30, 3, seconds=5.0, cpu_seconds=1.0, first_batch_s=3.0, first_batch_samples=10)
    single = MockResult(10, 1, seconds=5.0, cpu_seconds=1.0, first_batch_s=5.0, first_batch_samples=10)

    assert (steady.steady_samples_per_s, steady.samples_per_s) == (10.0, 6.0)
    assert single.steady_samples_per_s == 2.0
