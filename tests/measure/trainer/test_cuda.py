"""The trainer on a CUDA device: about the CPU's losses in every precision, and what only a GPU has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fastio.errors import FastioError
from fastio.measure.loop.data import DataOptions
from fastio.measure.loop.halves import measure_halves
from fastio.measure.trainer.run import MODELS, TrainResult, open_training, synthetic, train
from fastio.measure.trainer.step import StepOptions, TrainStep
from tests.measure.trainer.coloured import as_folder, as_stores

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CIFAR = MODELS["cifar10cnn"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures of four classes."""
    return as_stores(as_folder(tmp_path_factory.mktemp("cuda") / "train", 40))["lmdb"]


def trained(store: Path, device: str, **options: Any) -> TrainResult:
    """A few steps on a device."""
    settings = StepOptions(device=torch.device(device, 0), **options)
    with open_training(str(store), CIFAR, DataOptions(batch_size=8), settings=settings) as (data, workload):
        return train(data, TrainStep(workload, settings), 7)


@pytest.mark.parametrize("options", [{}, {"tf32": True}, {"amp": "fp16"}, {"amp": "bf16"}, {"channels_last": True}])
def test_losses_are_about_those_of_the_cpu(store: Path, options: dict[str, Any]) -> None:
    """By CUDA events, with memory counted."""
    found = trained(store, "cuda", **options)

    assert pytest.approx(trained(store, "cpu").losses, rel=0.05) == found.losses
    assert found.summary.clock == "events"
    assert found.peak_bytes is not None
    assert found.peak_bytes > 4 * 2_168_362


@pytest.mark.parametrize("tf32", [True, False])
def test_tf32_is_both_or_neither(tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions and matrices."""
    for owner in (torch.backends.cuda.matmul, torch.backends.cudnn):
        monkeypatch.setattr(owner, "allow_tf32", not tf32)
    TrainStep(CIFAR, StepOptions(device=torch.device("cuda", 0), tf32=tf32))

    assert [tf32] * 2 == [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]


@pytest.mark.parametrize("amp", ["off", "fp16", "bf16"])
def test_batches_come_ready(store: Path, amp: Any) -> None:
    """On the device, normalised, in the dtype and the layout of the network."""
    settings = StepOptions(device=torch.device("cuda", 0), amp=amp, channels_last=True)
    with open_training(str(store), CIFAR, DataOptions(batch_size=8), settings=settings) as (data, _):
        images, labels = next(iter(data.loader))

    assert (settings.device, settings.dtype) == (images.device, images.dtype)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert settings.device == labels.device


def test_halves(store: Path) -> None:
    """Training alone keeps its batch on the device."""
    settings = StepOptions(device=torch.device("cuda", 0))
    with open_training(str(store), CIFAR, DataOptions(batch_size=8), settings=settings) as (data, workload):
        halves = measure_halves(data, TrainStep(workload, settings), seconds=0.2)

    assert halves.training.clock == "events"


def test_memory_that_does_not_suffice() -> None:
    """One line."""
    settings = StepOptions(device=torch.device("cuda", 0))
    data = synthetic(CIFAR, 2, settings)
    step = TrainStep(CIFAR, settings)
    step._run = lambda images: torch.empty(1 << 60, device=images.device)
    with pytest.raises(FastioError, match="cuda:0: out of memory"):
        train(data, step, 2)


def test_text() -> None:
    """Attention in half precision."""
    settings = StepOptions(device=torch.device("cuda", 0), amp="bf16")
    transformer = MODELS["transformer"]
    result = train(synthetic(transformer, 4, settings), TrainStep(transformer, settings), 6)

    assert result.losses[-1] < result.losses[0]
