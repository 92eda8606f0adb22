"""A user's own Python functions anywhere in a list of transforms: PerSample and PerBatch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastio import DevicePrefetcher, FastDataset, FastLoader, SampleError, SchemaError, Writer
from fastio.transforms import (
    CenterCrop,
    Compose,
    MixUp,
    Normalize,
    PerBatch,
    PerSample,
    RandomHorizontalFlip,
    RandomInvert,
    Resize,
)

COUNT = 10


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of one colour each, 16 x 20 pixels."""
    path = tmp_path_factory.mktemp("functions") / "x.lmdb"
    with Writer(path, {"image": "uint8[16,20,3]", "label": "label"}) as writer:
        for number in range(COUNT):
            writer.write({"image": np.full((16, 20, 3), number * 20, np.uint8), "label": number})
    return path


def invert(picture: torch.Tensor) -> torch.Tensor:
    """What is left of 255."""
    return 255 - picture


def mark(picture: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
    """Two numbers, in the first two pixels; changes what it got."""
    picture[:, 0, :2] = torch.from_numpy(numbers * 255).to(picture.dtype)
    return picture


def refuse_dark(picture: torch.Tensor) -> torch.Tensor:
    """Fails for the first three."""
    if int(picture.max()) < 60:
        raise ValueError("too dark")
    return picture


def batches(store: Any, steps: Any, batch_size: int = 4, **options: Any) -> list[Any]:
    """One epoch."""
    with FastLoader(store, batch_size, transforms=steps, **options) as loader:
        return list(loader)


def images(store: Any, steps: Any, batch_size: int = 4, **options: Any) -> torch.Tensor:
    """The pictures of an epoch."""
    return torch.cat([batch[0] for batch in batches(store, steps, batch_size, **options)])


@pytest.mark.parametrize(
    "steps",
    [
        [PerSample(invert), CenterCrop(8), RandomInvert(0.0)],
        [CenterCrop(8), PerSample(invert)],
        [CenterCrop(8), RandomInvert(0.0), PerSample(invert), Resize(8), RandomHorizontalFlip()],
        [CenterCrop(8), PerBatch(lambda batch: [255 - batch[0], batch[1]]), RandomInvert(0.0)],
        [CenterCrop(8), PerSample(invert), PerBatch(lambda batch: batch), PerSample(invert), PerSample(invert)],
        [CenterCrop(8), lambda batch: [255 - batch[0], batch[1]]],
    ],
)
def test_anywhere(store: Path, steps: list[Any]) -> None:
    """Before, between and behind crops, colours and each other, in order."""
    expected = 255 - images(store, [CenterCrop(8)])
    assert torch.equal(expected, images(store, steps))
    assert torch.equal(expected, images(store, steps, device="cpu", layout="channels_last"))
    with FastLoader(store, 4) as loader:
        found = torch.cat([pictures for pictures, _ in DevicePrefetcher(loader, "cpu", transforms=steps)])
    assert torch.equal(expected, found)


def test_numbers_belong_to_seed_epoch_and_sample(store: Path) -> None:
    """Not to the batch; a second function, and another epoch, have others; a resume goes on with the same."""
    steps = [CenterCrop(8), PerSample(mark, draws=2), PerBatch(lambda batch: batch), PerSample(mark, draws=2)]
    first, both = images(store, steps[:2]), images(store, steps)
    assert torch.equal(first, images(store, steps[:2], 3))
    assert not torch.equal(first, both)
    with FastLoader(store, 4, transforms=steps) as loader:
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
        loader.set_epoch(1)
        assert not torch.equal(both[:4], next(iter(loader))[0])
    with FastLoader(store, 4, transforms=steps) as loader:
        loader.load_state_dict(state)
        assert torch.equal(both[4:8], next(iter(loader))[0])
    assert "PerSample(tests.loader.test_functions.mark, draws=2)" in state["batch_transforms"]
    with (
        FastLoader(store, 4, transforms=[CenterCrop(8), PerSample(invert)]) as loader,
        pytest.raises(ValueError, match="PerSample"),
    ):
        loader.load_state_dict(state)


def test_floating_pictures_and_a_mix(store: Path) -> None:
    """Behind Normalize and MixUp, functions get what these make; a batch function gets soft labels."""
    shapes = []

    def look(batch: Any) -> Any:
        shapes.append((batch[0].dtype, tuple(batch[1].shape)))
        return batch

    steps = [MixUp(num_classes=COUNT), PerBatch(look), Normalize((0.5,), (0.5,)), PerSample(lambda picture: -picture)]
    found, plain = images(store, steps), images(store, [steps[0], steps[2]])
    assert torch.equal(-plain, found)
    assert (torch.uint8, (4, COUNT)) == shapes[0]


def test_views(store: Path) -> None:
    """Each view has its functions; one for a batch gets the pictures of the view."""
    views = [(1, [CenterCrop(8), PerBatch(invert), RandomInvert(0.0)]), (1, [CenterCrop(8)])]
    with FastLoader(store, 4, views=views) as loader:
        for (one, other), _ in loader:
            assert torch.equal(255 - other, one)


@pytest.mark.parametrize("on_error", ["raise", "skip", "zero"])
def test_an_exception_names_the_sample(store: Path, on_error: Any) -> None:
    """It ends the loop whatever on_error is; batches before it are still good. One of a batch function passes."""
    order = [5, 6, 7, 1]
    with FastLoader(
        store, 2, sampler=order, transforms=[CenterCrop(8), PerSample(refuse_dark)], on_error=on_error
    ) as f:
        found = iter(f)
        next(found)
        with pytest.raises(SampleError, match=r"x.lmdb\[1\] \('.*'\): PerSample\(.*refuse_dark.*too dark") as caught:
            next(found)
    assert (1, True) == (caught.value.index, bool(caught.value.key))
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ZeroDivisionError):
        batches(store, [PerBatch(lambda batch: 1 // 0)], on_error=on_error)


def test_compose_takes_functions_of_samples(store: Path) -> None:
    """Where they stand; functions of batches, and functions that do not say what they get, are refused."""
    steps = [PerSample(invert), CenterCrop(8), PerSample(mark, draws=2)]
    dataset = FastDataset(store, transform=Compose(steps))
    expected = 255 - images(store, [CenterCrop(8)])
    picture = torch.from_numpy(np.array(dataset[3][0]))
    assert torch.equal(expected[3].permute(1, 2, 0)[1:], picture[1:])
    with pytest.raises(TypeError, match=r"write PerSample\(invert\)"):
        Compose([invert])  # type: ignore[list-item] # on purpose
    with pytest.raises(TypeError, match="works on batches"):
        Compose([PerBatch(invert)])  # type: ignore[list-item] # on purpose


@pytest.mark.parametrize("wrong", [lambda picture: None, lambda picture: picture[:1], lambda picture: picture / 2])
def test_what_is_no_picture_is_refused(store: Path, wrong: Any) -> None:
    """Another type, shape or dtype is the function's mistake, not the sample's."""
    with pytest.raises(
        TypeError, match=r"returned .*; expected a picture like the one it got, torch.uint8 \(3, 16, 20\)"
    ):
        batches(store, [PerSample(wrong)], on_error="skip")


def test_bad_lists(store: Path) -> None:
    """A bare function before others, a batch of another form, and nonsense get one clear line."""
    with pytest.raises(TypeError, match=r"write PerSample\(function\), which gets one picture, or PerBatch"):
        FastLoader(store, 4, transforms=[invert, CenterCrop(8)])
    with pytest.raises(SchemaError, match="2 pictures in a batch of 4 samples"):
        batches(store, [PerBatch(lambda batch: batch[0][:2]), RandomInvert(0.5)])
    for wrong in (lambda: PerSample(3), lambda: PerBatch(int), lambda: PerSample(invert, draws=-1)):  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match=r"function=|draws="):
            wrong()
