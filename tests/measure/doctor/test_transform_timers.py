"""Timing a dataset's transform step by step, without changing what it does."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import nn
from torch.utils.data import Subset

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.picture.stored import StoredPicture
from fastio.measure.doctor.transform_timers import WHOLE_PICTURE, TransformTimers, leave_transforms, step_name
from tests.conftest import encode, pictures, write_store
from tests.measure.doctor.planted import FAULT_S, Burn, Samples, burn

ENOUGH_S = FAULT_S / 2


@pytest.fixture(autouse=True)
def left() -> Iterator[None]:
    """Nothing stays wrapped after a test."""
    yield
    leave_transforms()


class Compose:
    """As torchvision's: calls its transforms one after the other."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        """In their order."""
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Module(nn.Module):
    """A transform as torchvision's newer ones are written."""

    def forward(self, sample: Any) -> Any:
        """Computes."""
        burn(FAULT_S)
        return sample


class Draws:
    """A random transform."""

    def __call__(self, sample: Any) -> Any:
        """A number from Python's generator."""
        return sample + random.random()


def slow(sample: Any) -> Any:
    """A plain function."""
    burn(FAULT_S)
    return sample


def slower_by(seconds: float, sample: Any) -> Any:
    """To be made partial."""
    burn(seconds)
    return sample


class Nested(Burn):
    """A class of transforms whose __call__ calls that of its base."""

    def __call__(self, sample: Any) -> Any:
        """Twice the work."""
        return super().__call__(super().__call__(sample))


def dataset_of(transform: Any) -> Samples:
    """A dataset with this transform."""
    return Samples(transform=transform)


@pytest.mark.parametrize(
    ("step", "name"),
    [(Burn(FAULT_S), "Burn"), (Module(), "Module"), (slow, "slow"), (partial(slower_by, FAULT_S), "partial")],
)
@pytest.mark.parametrize("put", [Compose, list, lambda steps: Compose([Compose(steps)])])
def test_the_slow_step_is_named(step: Any, name: str, put: Callable[[list[Any]], Any]) -> None:
    """Objects, modules, functions and partials, in a Compose, in one within another and in a list."""
    transform = put([Draws(), step, lambda sample: sample])
    timers = TransformTimers(dataset_of(transform))
    for each in transform if isinstance(transform, list) else [transform]:
        each(0)

    assert (3, name) == (len(timers.names), timers.names[1])
    assert timers.steps_s[1] > ENOUGH_S > max(timers.steps_s[0], timers.steps_s[2])
    assert timers.seconds > ENOUGH_S


@pytest.mark.parametrize("transform", [Burn(FAULT_S), Nested(FAULT_S / 2), slow])
def test_a_single_transform(transform: Any) -> None:
    """One transform has no steps; what its class inherits is not counted twice."""
    dataset = dataset_of(transform)
    timers = TransformTimers(Subset(dataset, [0]))
    dataset.transform(0)

    assert (step_name(transform),) == timers.names
    assert ENOUGH_S < timers.seconds < 1.9 * FAULT_S
    assert timers.steps_s == (timers.seconds,)


def test_nothing_changes_for_the_user() -> None:
    """Values and random draws are those without timers, and everything is as it was afterwards."""
    steps = [Draws(), slow, Module(), Draws()]
    compose = Compose(list(steps))
    random.seed(7)
    expected = compose(0)
    timers = TransformTimers(dataset_of(compose))
    random.seed(7)
    timed = compose(0)
    leave_transforms()

    assert timers
    assert expected == timed
    assert all(before is after for before, after in zip(steps, compose.transforms, strict=True))
    assert "__call__" not in vars(Module)
    assert "measured" not in Draws.__call__.__qualname__
    assert Draws.__call__.__module__ == __name__


def test_what_cannot_be_wrapped_is_left_alone() -> None:
    """Functions in a tuple stay where they are; there is a time of the whole."""
    compose = Compose((slow,))  # type: ignore[arg-type] # as some write it
    timers = TransformTimers(dataset_of(compose))
    compose(0)

    assert () == timers.names
    assert timers.seconds > ENOUGH_S


def test_a_batch_begins_at_zero() -> None:
    """reset forgets the batch before."""
    compose = Compose([slow])
    timers = TransformTimers(dataset_of(compose))
    compose(0)
    timers.reset()

    assert (0.0, (0.0,)) == (timers.seconds, timers.steps_s)


def test_a_picture_that_decodes_late() -> None:
    """Decoding belongs to no step, though it happens in the first one that asks for pixels."""
    (pixels,) = pictures(1, (700, 700, 3))
    compose = Compose([lambda image: image.resize((8, 8), Image.Resampling.NEAREST), np.asarray])
    timers = TransformTimers(dataset_of(compose))
    image = Image.open(io.BytesIO(encode(pixels)))
    compose(image)

    assert timers.decode_s > 2 * timers.seconds


def test_a_picture_of_a_store_that_waits(tmp_path: Path) -> None:
    """What FastDataset's pictures put off is decoding too, and everything is as it was afterwards."""
    buffer = io.BytesIO()
    Image.fromarray(pictures(1, (700, 700, 3))[0]).save(buffer, "JPEG")
    with FastDataset(write_store(tmp_path / "a.lmdb", [buffer.getvalue()])) as dataset:
        dataset.transform = Compose([lambda image: image.resize((8, 8)), np.asarray])
        render = vars(StoredPicture)["render"]
        timers = TransformTimers(dataset)
        expected = dataset[0]
        decode_s, seconds, kind = timers.decode_s, timers.seconds, timers.input
        leave_transforms()

        assert decode_s > seconds > 0
        assert kind == WHOLE_PICTURE
        assert vars(StoredPicture)["render"] is render
        assert (expected == dataset[0]).all()


def test_no_transform() -> None:
    """A dataset without one has nothing to time."""
    assert not TransformTimers(Samples())
    assert not TransformTimers([1, 2])


class Moody(Samples):
    """A dataset whose attributes are not for everybody."""

    @property
    def transforms(self) -> Any:
        """Not yet there."""
        raise RuntimeError("call setup() first")


def test_a_property_that_raises() -> None:
    """The user's training, which does not ask for it, goes on."""
    assert not TransformTimers(Moody())


def test_names_of_functions() -> None:
    """A lambda is named by its line."""
    assert step_name(lambda sample: sample).startswith("lambda at test_transform_timers.py:")
