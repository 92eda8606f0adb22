"""TrainStep: equal to the loop that everybody writes, in every precision and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from fastio.errors import FastioError
from fastio.measure.trainer.run import MODELS
from fastio.measure.trainer.step import StepOptions, TrainStep

CIFAR = MODELS["cifar10cnn"]


def batches(count: int = 3, size: int = 2) -> list[Any]:
    """Random uint8 pictures and labels."""
    generator = torch.Generator().manual_seed(2)
    return [CIFAR.task.random_batch(size, generator) for _ in range(count)]


def losses(options: StepOptions) -> list[float]:
    """Of a few steps."""
    step = TrainStep(CIFAR, options)
    return [float(step(batch)) for batch in batches()]


def test_the_loop_that_everybody_writes() -> None:
    """The same losses and the same weights, to the bit."""
    step = TrainStep(CIFAR, StepOptions(seed=3))
    torch.manual_seed(3)
    network = CIFAR.build(10)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    for images, labels in batches():
        normalised, _ = CIFAR.task.prepared((images, labels), torch.contiguous_format)
        loss = functional.cross_entropy(network(normalised), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        assert torch.equal(loss, step([images, labels]))
    assert all(map(torch.equal, network.parameters(), step.network.parameters()))


@pytest.mark.parametrize("options", [{"amp": "bf16"}, {"amp": "fp16"}, {"channels_last": True}])
def test_precisions_agree(options: dict[str, Any]) -> None:
    """About the losses of float32, and not its numbers where the precision is another."""
    plain, other = losses(StepOptions()), losses(StepOptions(**options))

    assert pytest.approx(plain, rel=0.02) == other
    assert all(value > 0 for value in other)


def test_fp16_scales_its_gradients() -> None:
    """A GradScaler, for float16 alone."""
    step = TrainStep(CIFAR, StepOptions(amp="fp16"))
    step(batches(1)[0])

    assert step._scaler is not None
    assert step._scaler.get_scale() > 1
    assert TrainStep(CIFAR, StepOptions(amp="bf16"))._scaler is None


def test_channels_last_weights() -> None:
    """The convolutions' weights lie so too."""
    step = TrainStep(CIFAR, StepOptions(channels_last=True))

    assert step.network[2].weight.is_contiguous(memory_format=torch.channels_last)


def test_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile gets the network; its weights are those that are trained."""
    asked = []

    def compile_(network: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        asked.append(network)
        return network.__call__

    monkeypatch.setattr(torch, "compile", compile_)
    step = TrainStep(CIFAR, StepOptions(compiled=True))
    step(batches(1)[0])

    assert [step.network] == asked


def test_the_seed_is_the_steps_own() -> None:
    """Building a step leaves the random numbers of the program as they are."""
    before = torch.random.get_rng_state()
    first, second, other = (TrainStep(CIFAR, StepOptions(seed=seed)) for seed in (1, 1, 2))

    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.network[0].weight, second.network[0].weight)
    assert not torch.equal(first.network[0].weight, other.network[0].weight)


def test_the_first_batch_is_checked() -> None:
    """With the name of the data."""
    step = TrainStep(CIFAR, StepOptions(), where="train.lmdb")
    with pytest.raises(FastioError, match=r"^train\.lmdb: expected pictures"):
        step(torch.zeros(3))
