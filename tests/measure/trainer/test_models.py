"""The networks of the trainer: size, shapes, precision, and what they see."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fastio.measure.trainer.pictures import ResNet50, cifar10cnn
from fastio.measure.trainer.run import MODELS
from fastio.measure.trainer.text import Transformer

SEED = 5


def build(name: str, outputs: int | None = None) -> nn.Module:
    """A network with the weights of one seed."""
    torch.manual_seed(SEED)
    workload = MODELS[name]
    return workload.build(outputs or workload.task.outputs)


def numbers(network: nn.Module) -> int:
    """What is learned."""
    return sum(part.numel() for part in network.parameters())


@pytest.mark.parametrize(
    ("name", "expected"), [("resnet50", 25_557_032), ("cifar10cnn", 2_168_362), ("transformer", 5_256_704)]
)
def test_parameters(name: str, expected: int) -> None:
    """As many as the literature says of ResNet-50, and as the sums of the layers give."""
    assert expected == numbers(build(name))


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("cifar10cnn", (2, 3, 32, 32), (2, 10)),
        ("resnet50", (2, 3, 64, 96), (2, 1000)),
    ],
)
def test_pictures_to_classes(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """A score for each class."""
    with torch.no_grad():
        assert expected == build(name).eval()(torch.zeros(shape)).shape


@pytest.mark.parametrize("name", sorted(MODELS))
def test_float64_and_float32_agree(name: str) -> None:
    """Nothing in a network goes by another dtype than its weights."""
    task = MODELS[name].task
    batch = task.random_batch(2, torch.Generator().manual_seed(SEED))
    network = build(name).eval()
    with torch.no_grad():
        if name == "transformer":
            loss, exact = task.loss(network, batch), task.loss(network.double(), batch)
        else:
            images, labels = task.prepared(batch, torch.contiguous_format)
            images = images[..., :48, :48]
            loss = task.loss(network, (images, labels))
            exact = task.loss(network.double(), (images.double(), labels))

    assert exact.dtype == torch.float64
    torch.testing.assert_close(loss.double(), exact, rtol=1e-4, atol=1e-5)


def test_resnet_is_version_1_5() -> None:
    """A block halves the picture in its 3x3 convolution; the sizes behind the stages are those of the paper."""
    network = ResNet50()
    strided = [
        part.kernel_size
        for part in network.blocks.modules()
        if isinstance(part, nn.Conv2d) and part.stride == (2, 2) and part.in_channels == part.out_channels
    ]

    assert [(3, 3)] * 3 == strided
    assert (2, 2048, 2, 3) == network.blocks(network.stem(torch.zeros(2, 3, 64, 96))).shape


def test_cifar10cnn_layer_by_layer() -> None:
    """The sequence is what its docstring says."""
    network = cifar10cnn().double()
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    weights = list(network.parameters())
    seen = images
    for place in range(4):
        seen = functional.conv2d(seen, weights[2 * place], weights[2 * place + 1], padding=1).clamp(min=0)
        if place % 2:
            seen = seen.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax(dim=(3, 5))
    seen = (seen.flatten(1) @ weights[8].T + weights[9]).clamp(min=0) @ weights[10].T + weights[11]

    torch.testing.assert_close(network(images), seen)


def test_a_token_sees_only_those_before_it() -> None:
    """Another last token changes the scores of the last place alone."""
    network = build("transformer", 100).double().eval()
    ids = torch.randint(0, 100, (2, 12), generator=torch.Generator().manual_seed(SEED))
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % 100
    with torch.no_grad():
        first, second = network(ids), network(other)

    assert torch.equal(first[:, :-1], second[:, :-1])
    assert not torch.equal(first[:, -1], second[:, -1])


def test_transformer_tells_places_apart() -> None:
    """The same token scores otherwise in another place behind other tokens."""
    torch.manual_seed(SEED)
    network = Transformer(10, layers=1, width=16, heads=2).eval()
    with torch.no_grad():
        scores = network(torch.tensor([[1, 1, 1, 1]]))[0]

    assert not torch.allclose(scores[1], scores[2])
