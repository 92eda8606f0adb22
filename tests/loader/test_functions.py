"""A user's own Python functions anywhere in a list of transforms: PerSample and PerBatch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastio import ClipSampler, DevicePrefetcher, FastDataset, FastLoader, SampleError, SchemaError, Writer
from fastio.loader.device.lane import HostLane
from fastio.transforms import (
    CenterCrop,
    Compose,
    MixUp,
    Mosaic,
    Normalize,
    PerBatch,
    PerSample,
    RandomHorizontalFlip,
    RandomInvert,
    Resize,
    ToDtype,
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


def refuse_low(picture: torch.Tensor) -> torch.Tensor:
    """Fails for the last, of floating numbers."""
    if float(picture.max()) > 0.4:
        raise ValueError("too bright")
    return picture


def refuse_bright(picture: torch.Tensor) -> torch.Tensor:
    """Fails for bright ones."""
    if int(picture.max()) > 120:
        raise ValueError("too bright")
    return picture


def refuse_marked(picture: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
    """Fails for some, whatever they show."""
    if numbers[0] > 0.5:
        raise ValueError("marked")
    return picture


def tuple_of(batch: Any) -> Any:
    """The batch as another container."""
    return tuple(batch)


MULTIPLIED = PerBatch(lambda batch: (batch[0] * 2, batch[1]))


class Labelled(FastDataset):
    """Makes its samples itself."""

    def __getitem__(self, index: int) -> Any:
        picture, label = super().__getitem__(index)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous(), label

    def blank(self, index: int) -> Any:
        """Zeros."""
        return torch.zeros_like(self[index][0]), self[index][1]


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


TOO_DARK = r"x.lmdb\[1\] \('.*'\): PerSample\(.*refuse_dark.*too dark"


def test_an_exception_names_the_sample(store: Path) -> None:
    """It ends the loop; batches before it are still good. One of a batch function passes, whatever on_error is."""
    order = [5, 6, 7, 1]
    with FastLoader(store, 2, sampler=order, transforms=[CenterCrop(8), PerSample(refuse_dark)]) as f:
        found = iter(f)
        next(found)
        with pytest.raises(SampleError, match=TOO_DARK + ".*skip") as caught:
            next(found)
    assert (1, True) == (caught.value.index, bool(caught.value.key))
    assert isinstance(caught.value.__cause__, ValueError)
    prefetched = DevicePrefetcher(FastLoader(store, 4), "cpu", transforms=[PerSample(refuse_dark)])
    with pytest.raises(SampleError, match=r"\[0\]: PerSample"):
        next(iter(prefetched))
    for on_error in ("raise", "skip", "zero"):
        with pytest.raises(ZeroDivisionError):
            batches(store, [PerBatch(lambda batch: 1 // 0)], on_error=on_error)


def darkened(batch: Any) -> Any:
    """Changes the batch that it gets."""
    batch[0].mul_(0)
    return batch


FAILING: list[tuple[str, list[Any]]] = [
    ("behind crops", [CenterCrop(8), PerSample(refuse_dark)]),
    ("before crops", [PerSample(refuse_dark), CenterCrop(8), RandomHorizontalFlip(1.0)]),
    ("behind floats", [CenterCrop(8), ToDtype(torch.float32), PerSample(refuse_dark)]),
    ("twice", [CenterCrop(8), PerSample(refuse_dark), Normalize((0.5,), (0.5,)), PerSample(refuse_low)]),
    ("behind a function", [CenterCrop(8), PerBatch(lambda batch: tuple(batch)), PerSample(refuse_dark)]),
]


@pytest.mark.parametrize("steps", [steps for _, steps in FAILING], ids=[name for name, _ in FAILING])
@pytest.mark.parametrize("kind", ["native", "samples"])
def test_samples_that_a_function_fails_for_are_skipped(store: Path, steps: list[Any], kind: str) -> None:
    """The others are what they are without them, with their labels; skipped, stats and receipt have them once."""
    bad = [0, 1, 2, 9] if Normalize((0.5,), (0.5,)) in steps else [0, 1, 2]
    good = [index for index in range(COUNT) if index not in bad]
    dataset = FastDataset(store) if kind == "native" else Labelled(store)
    if kind == "samples":  # whose transforms= are for batches
        steps = [*(step for step in steps if step != CenterCrop(8)), CenterCrop(8)]
    expected = images(store, [step for step in steps if not isinstance(step, PerSample)], indices=good)
    with FastLoader(dataset, 4, transforms=steps, on_error="skip", shuffle=True) as loader:
        for epoch in range(2):
            parts = [(batch[0], batch[1]) for batch in loader]
            pictures, labels = (torch.cat(each) for each in zip(*parts, strict=True))
            assert good == sorted(labels.tolist())
            assert torch.equal(expected, pictures[labels.argsort()])
            receipt = loader.receipt()
            assert bad == sorted(error.index for error in loader.skipped)
            assert (len(bad), False) == (receipt.skipped, receipt.is_exact), epoch
        assert len(good) * 2 == loader.stats.samples
        assert all(error.__cause__ is None and "raised ValueError" in str(error) for error in loader.skipped)


@pytest.mark.parametrize("kind", ["native", "samples"])
def test_samples_that_a_function_fails_for_become_zeros(store: Path, kind: str) -> None:
    """As decoded: what follows is done to them, but no function is called; labels stay."""
    dataset = FastDataset(store) if kind == "native" else Labelled(store)
    steps = [PerSample(refuse_dark), CenterCrop(8), RandomInvert(1.0), PerSample(refuse_dark)]
    pictures, labels = map(torch.cat, zip(*batches(dataset, steps, on_error="zero"), strict=True))
    assert list(range(COUNT)) == labels.tolist()
    assert torch.equal(255 - images(store, [CenterCrop(8)])[3:], pictures[3:])
    assert not pictures[:3].any()


def test_a_batch_function_sees_what_it_would_see_without_them(store: Path) -> None:
    """One that changes its batch in place gets what was decoded; a mix takes no part of a bad sample."""
    seen = []

    def look(batch: Any) -> Any:
        seen.append(batch[0].clone())
        return darkened(batch)

    steps = [CenterCrop(8), PerBatch(look), PerBatch(lambda batch: batch), PerSample(refuse_marked, draws=1)]
    with FastLoader(store, COUNT, transforms=steps, on_error="zero") as loader:
        list(loader)
        bad = [error.index for error in loader.skipped]
    good = [index for index in range(COUNT) if index not in bad]
    assert good
    assert torch.equal(images(store, [CenterCrop(8)], COUNT), seen[0])
    assert torch.equal(seen[0][good], seen[1][good])
    assert not seen[1][bad].any()

    mixed = [CenterCrop(8), MixUp(num_classes=COUNT), PerSample(refuse_bright)]
    with FastLoader(store, COUNT, transforms=mixed, on_error="skip") as loader:
        ((pictures, labels),) = loader
        bad = [error.index for error in loader.skipped]
    good = [index for index in range(COUNT) if index not in bad]
    ((expected, shares),) = batches(store, mixed[:2], len(good), indices=good)
    assert bad
    assert torch.equal(expected, pictures)
    assert torch.equal(shares, labels)


def test_a_resume_and_views(store: Path) -> None:
    """What is left of an epoch is the same; a sample that one view is bad for is bad in all of them."""
    views = [(1, [CenterCrop(8)]), (1, [CenterCrop(6), PerSample(refuse_dark)])]
    for on_error in ("skip", "zero"):
        with FastLoader(store, 2, views=views, on_error=on_error, shuffle=True) as loader:
            every = iter(loader)
            next(every)
            state = json.loads(json.dumps(loader.state_dict()))
            rest = list(every)
        with FastLoader(store, 2, views=views, on_error=on_error, shuffle=True) as loader:
            loader.load_state_dict(state)
            again = list(loader)
            assert loader.receipt().skipped == 3
        assert len(rest) == len(again)
        for ((one, other), labels), ((same, second), those) in zip(rest, again, strict=True):
            assert labels.tolist() == those.tolist()
            assert torch.equal(one, same)
            assert torch.equal(other, second)
            is_bad = labels < 3
            assert on_error == "zero" or not is_bad.any()
            assert not one[is_bad].any()
            assert not other[is_bad].any()
    with FastLoader(store, 5, repeats=2, transforms=views[1][1], on_error="skip") as loader:
        assert [3, 4, 3, 4] == next(iter(loader))[1].tolist()


def test_a_dataset_names_the_sample_that_a_function_fails_for(store: Path) -> None:
    """In a DataLoader, and where a FastLoader takes the dataset's own samples, which on_error is for."""
    dataset = FastDataset(store, transform=Compose([CenterCrop(8), PerSample(refuse_dark)]))
    with pytest.raises(SampleError, match=TOO_DARK) as caught:
        dataset[1]
    assert (1, True) == (caught.value.index, isinstance(caught.value.__cause__, ValueError))
    with FastLoader(dataset, 4, on_error="skip") as loader:
        assert list(range(3, COUNT)) == torch.cat([labels for _, labels in loader]).tolist()
    pictures, labels = next(iter(FastLoader(dataset, 4, on_error="zero")))
    assert not pictures[:3].any()
    assert pictures[3].any()
    assert [0, 1, 2, 3] == labels.tolist()


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


@pytest.mark.parametrize(
    ("function", "draws", "message"),
    [
        (lambda picture, numbers: picture, 0, "called with picture, but its arguments are .*pass draws=N"),
        (lambda picture: picture, 2, "called with picture and numbers, but its arguments are .*leave draws= out"),
    ],
)
def test_a_function_that_no_sample_could_be_given_to(function: Any, draws: int, message: str) -> None:
    """It is refused when the step is made: under "skip", every sample would be left out."""
    with pytest.raises(TypeError, match=message):
        PerSample(function, draws=draws)
    PerSample(np.ascontiguousarray)  # whose arguments Python does not know, or which may have more
    PerSample(lambda picture, strength=0.5: picture * strength)


def test_two_pictures_and_a_clip(tmp_path: Path) -> None:
    """Of a sample that a function fails for in one picture, no picture is left, and all else stays or goes with it."""
    with Writer(tmp_path / "x.lmdb", {"a": "uint8[8,8,3]", "b": "uint8[8,8,3]", "text": "text", "label": "label"}) as w:
        for number in range(COUNT):
            a, b = (np.full((8, 8, 3), each, np.uint8) for each in (number * 20, 180 - number * 20))
            w.write({"a": a, "b": b, "text": str(number), "label": number})
    steps, every = [PerSample(refuse_dark)], {}
    for on_error in ("skip", "zero"):
        with FastLoader(tmp_path / "x.lmdb", COUNT, transforms=steps, on_error=on_error) as loader:
            (every[on_error],) = loader
            assert [0, 1, 2, 7, 8, 9] == sorted(error.index for error in loader.skipped)
    good = [3, 4, 5, 6]
    assert good == every["skip"]["label"].tolist()
    assert [*map(str, good)] == every["skip"]["text"]
    assert [str(number) for number in range(COUNT)] == every["zero"]["text"]
    for name in "ab":
        assert torch.equal(every["skip"][name], every["zero"][name][good])
        assert 4 == int(every["zero"][name].flatten(1).any(1).sum())

    clips = ClipSampler(np.zeros(COUNT, np.int64), frames=4, stride=1, step=4, batch_size=2, shuffle=False)
    dataset = FastDataset(tmp_path / "x.lmdb", fields=("a", "label"))
    found = {}
    for on_error in ("skip", "zero"):
        with FastLoader(dataset, batch_sampler=clips, transforms=steps, on_error=on_error) as loader:
            (found[on_error],) = loader
    assert [[4, 5, 6, 7]] == found["skip"][1].tolist()
    assert not found["zero"][0][0].any()
    assert torch.equal(found["skip"][0][0], found["zero"][0][1])


class Apart(HostLane):
    """The CPU as another device."""

    is_immediate = False


def test_functions_stay_on_the_host(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device, what stands behind the last function is done there, with the numbers that it has on the host."""
    steps = [
        *[CenterCrop(8), MixUp(num_classes=COUNT), PerSample(mark, draws=2), PerBatch(tuple_of), RandomInvert(0.5)],
        *[PerSample(refuse_bright), RandomInvert(0.5), Normalize((0.5,), (0.5,)), PerBatch(tuple_of), MULTIPLIED],
    ]
    options: dict[str, Any] = {"on_error": "skip", "shuffle": True}
    expected = batches(store, steps, 5, **options)
    monkeypatch.setattr("fastio.loader.wiring.lane_to", lambda device: Apart())
    with FastLoader(store, 5, transforms=steps, device="cpu", **options) as loader:
        placed = "\n".join(loader.placement.lines)
        found = list(loader)
        assert loader.skipped
    assert "PerSample" in placed.partition("Normalize")[0]
    assert len(expected) == len(found)
    for batch, other in zip(expected, found, strict=True):
        for part, same in zip(batch, other, strict=True):
            assert torch.equal(part, same)


def test_a_transform_may_say_that_a_sample_is_bad(store: Path) -> None:
    """By a SampleError without a sample, which gets the names of the one that it is for."""

    def refuse(picture: Any) -> Any:
        if np.array(picture).max() < 60:
            raise SampleError("too dark")
        return picture

    dataset = FastDataset(store, refuse)
    with pytest.raises(SampleError, match=r"x.lmdb\[1\] \('.*'\): too dark") as caught:
        dataset[1]
    assert 1 == caught.value.index
    with FastLoader(dataset, 4, on_error="skip") as loader:
        assert list(range(3, COUNT)) == torch.cat([labels for _, labels in loader]).tolist()
        assert 3 == loader.receipt().skipped


def test_where_a_gpu_decodes_a_bad_picture_ends_the_loop(store: Path) -> None:
    """Leaving it out there is refused when the loader is built."""
    with pytest.raises(ValueError, match=r"PerSample.* with decode='device' and on_error='skip': .*drop decode="):
        FastLoader(store, 4, transforms=[PerSample(invert)], device="cuda", decode="device", on_error="skip")


def test_a_mosaic_is_made_without_a_picture_that_a_function_fails_for(tmp_path: Path) -> None:
    """With "skip", nothing of it is in any mosaic."""
    with Writer(tmp_path / "x.lmdb", {"image": "uint8[8,8,3]", "label": "label"}) as writer:
        for number in range(COUNT):
            writer.write({"image": np.full((8, 8, 3), number * 20, np.uint8), "label": number})
    steps = [Mosaic(16), PerSample(refuse_marked, draws=1)]
    with FastLoader(tmp_path / "x.lmdb", COUNT, transforms=steps, on_error="skip") as loader:
        ((pictures, labels),) = loader
        bad = sorted(error.index for error in loader.skipped)
    assert 0 < len(bad) < COUNT
    assert sorted({*range(COUNT)} - {*bad}) == labels.tolist()
    assert not {number * 20 for number in bad if number} & {*pictures.unique().tolist()}
