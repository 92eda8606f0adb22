"""A Mixture whose members have transforms of their own."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from fastio import FastDataset, FastLoader, Mixture, SchemaError
from fastio.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    Grayscale,
    KeepBoxes,
    KeepGeometry,
    KeepPoints,
    MixUp,
    Normalize,
    Pad,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
)
from fastio.transforms.fused import uniform
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields

COUNTS = {"large": 12, "small": 6}
WEIGHTS = {"large": 2, "small": 1}
OWN: dict[str, list[Any]] = {
    "large": [RandomResizedCrop(16), RandomHorizontalFlip(), ColorJitter(0.4, 0.4)],
    "small": [Resize(20), CenterCrop(16), RandomRotation(20)],
}


def as_tiff(pixels: Any) -> bytes:
    """A picture that Pillow decodes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF")
    return file.getvalue()


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastDataset]:
    """Pictures of two sizes; every third of the small ones is decoded by Pillow. Labels are 100 and up, 200 and up."""
    folder, stores = tmp_path_factory.mktemp("members"), {}
    for number, (name, side) in enumerate((("large", (40, 48, 3)), ("small", (24, 22, 3))), start=1):
        some = list(pictures(COUNTS[name], side))
        values = [as_tiff(each) if name == "small" and at % 3 == 0 else encode(each) for at, each in enumerate(some)]
        stores[name] = FastDataset(write_store(folder / f"{name}.lmdb", values, np.arange(len(some)) + 100 * number))
    return stores


def mixture(members: dict[str, FastDataset], transforms: Any = OWN, **options: Any) -> Mixture:
    return Mixture(members, WEIGHTS, transforms=transforms, **options)


def by_label(loader: FastLoader) -> dict[int, torch.Tensor]:
    """The picture of each label in one epoch."""
    with loader:
        return {int(label): image for images, labels in loader for image, label in zip(images, labels, strict=True)}


@pytest.mark.parametrize("later", [[], [Normalize((0.5,) * 3, (0.5,) * 3)]], ids=["bytes", "normalised"])
@pytest.mark.parametrize("batching", ["random", "stratified", "per_source"])
def test_each_member_gets_its_own(members: dict[str, FastDataset], batching: Any, later: list[Any]) -> None:
    """Without random numbers, pictures are those of a loader of the member alone; those of Pillow, too."""
    own: dict[str, list[Any]] = {"large": [CenterCrop(16)], "small": [Resize(18), CenterCrop(16)]}
    mixed = mixture(members, own, batching=batching)
    got = by_label(FastLoader(mixed, 6, shuffle=True, transforms=later, threads=2))

    for name, dataset in members.items():
        alone = by_label(FastLoader(dataset, 3, transforms=[*own[name], *later]))
        for label in alone.keys() & got.keys():
            assert torch.equal(alone[label], got[label])
    assert {1, 2} == {label // 100 for label in got}


def test_random_numbers_belong_to_samples(members: dict[str, FastDataset]) -> None:
    """The first member's are those of a loader of it alone; threads and sizes of batches change nothing."""
    own = {"large": [RandomResizedCrop(16), RandomHorizontalFlip()], "small": [RandomCrop(16)]}
    got = by_label(FastLoader(mixture(members, own), 6, seed=5, threads=2))
    again = by_label(FastLoader(mixture(members, own), 4, seed=5, threads=1))
    alone = by_label(FastLoader(members["large"], 6, seed=5, transforms=own["large"]))

    for label in alone.keys() & got.keys():
        assert torch.equal(alone[label], got[label])
    for label in again.keys() & got.keys():
        assert torch.equal(again[label], got[label])


def test_colours_of_members_and_of_all(members: dict[str, FastDataset]) -> None:
    """Colours of all members draw other numbers than a member's, and come behind them."""
    jitter = ColorJitter(0.5)
    twice = by_label(FastLoader(mixture(members, {"large": [CenterCrop(16), jitter], "small": [CenterCrop(16)]}), 6))
    whole = {name: [CenterCrop(16)] for name in members}
    all_alike = by_label(FastLoader(mixture(members, whole), 6, transforms=[jitter]))
    both = by_label(
        FastLoader(mixture(members, {**whole, "large": [CenterCrop(16), jitter]}), 6, transforms=[RandomErasing(1.0)])
    )

    assert twice.keys() == all_alike.keys() == both.keys()
    assert not any(torch.equal(twice[label], all_alike[label]) for label in twice if label < 200)
    for label, picture in both.items():
        assert (picture != twice[label]).any()
        assert (picture == twice[label]).float().mean() > 0.5  # but for what was erased


def test_a_state_goes_on_and_names_the_lists(members: dict[str, FastDataset]) -> None:
    """A resumed epoch has the same pictures; other lists of a member are refused."""
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 2}
    with FastLoader(mixture(members), **options) as loader:
        batches = iter(loader)
        list(islice(batches, 2))
        state = loader.state_dict()
        expected = list(batches)
        assert loader.receipt().is_exact
    with FastLoader(mixture(members), **options) as loader:
        loader.load_state_dict(state)
        got = list(loader)
    assert all(torch.equal(one[0], other[0]) for one, other in zip(expected, got, strict=True))
    other = {**OWN, "small": [CenterCrop(16)]}
    with (
        FastLoader(mixture(members, other), **options) as loader,
        pytest.raises(ValueError, match=r"small: \[CenterCrop"),
    ):
        loader.load_state_dict(state)


def test_damaged_pictures_are_skipped(members: dict[str, FastDataset], tmp_path: Path) -> None:
    """The others of the batch are as without the damage."""
    values = [encode(each) for each in pictures(COUNTS["small"], (24, 22, 3))]
    broken = [value if at != 2 else value[:70] for at, value in enumerate(values)]
    got = []
    for name, some in (("good", values), ("bad", broken)):
        store = write_store(tmp_path / f"{name}.lmdb", some, np.arange(len(some)) + 200)
        mixed = mixture({**members, "small": FastDataset(store)})
        with FastLoader(mixed, 6, on_error="skip", verify=False) as loader:
            batches = [zip(labels.tolist(), images, strict=True) for images, labels in loader]
            got.append({label: image for batch in batches for label, image in batch})
    assert {202} == got[0].keys() - got[1].keys()
    assert all(torch.equal(image, got[0][label]) for label, image in got[1].items())


def test_masks_follow_the_list_of_their_member(tmp_path: Path) -> None:
    """A mask is moved as the picture of the same sample."""
    types = {name: TYPES[name] for name in ("image", "mask")}
    members = {
        name: FastDataset(write_fields(tmp_path / f"{name}.lmdb", make_samples(6), types), fields=("image", "mask"))
        for name in ("a", "b")
    }
    own: dict[str, list[Any]] = {"a": [RandomCrop(8)], "b": [RandomCrop(8), RandomHorizontalFlip(1.0)]}
    with FastLoader(Mixture(members, {"a": 1, "b": 1}, transforms=own), 12, seed=1) as loader:
        images, masks = next(iter(loader))
    with FastLoader(Mixture(members, {"a": 1, "b": 1}, transforms={**own, "b": own["a"]}), 12, seed=1) as loader:
        plain, plain_masks = next(iter(loader))
    flipped = [not torch.equal(one, other) for one, other in zip(images, plain, strict=True)]

    assert {True, False} == set(flipped)
    with pytest.raises(
        SchemaError, match=r"of 'b' and 'a', .* add the field 'geometry', which samples of .* lack: give"
    ):
        FastLoader(Mixture(members, {"a": 1, "b": 1}, transforms={**own, "b": [KeepGeometry(), *own["b"]]}), 12)
    for at, is_flipped in enumerate(flipped):
        expected = plain_masks[at].flip(-1) if is_flipped else plain_masks[at]
        assert torch.equal(expected, masks[at])


def test_a_loader_says_whose_transforms_run(members: dict[str, FastDataset]) -> None:
    """By member, where the picture is made."""
    with FastLoader(mixture(members), 6) as loader:
        line = loader.placement.lines[0]
    assert "large: RandomResizedCrop + RandomHorizontalFlip + ColorJitter" in line
    assert "small: Resize + CenterCrop + RandomRotation" in line
    assert "transforms of large" in repr(mixture(members))


@pytest.mark.parametrize(
    ("transforms", "options", "kind", "message"),
    [
        ([RandomCrop(8)], {}, TypeError, "expected a mapping of members to lists"),
        ({"huge": []}, {}, ValueError, "no member 'huge' among 'large', 'small'"),
        ({"small": [Normalize((0.5,), (0.5,))]}, {}, TypeError, r"\['small'\]: Normalize.* is not among the crops"),
        ({"small": [ColorJitter(0.1), RandomCrop(8)]}, {}, TypeError, "RandomCrop.* is not among the crops"),
        ({"small": [RandomCrop(8)]}, {"transforms": [RandomCrop(8)]}, ValueError, "put it into their lists"),
        ({"small": [RandomCrop(8)]}, {"cache": "device", "device": "cpu"}, ValueError, "pass cache='ram', or drop it"),
        ({"small": [RandomCrop(8)]}, {"views": [(2, [RandomCrop(8)])]}, ValueError, "^views: RandomCrop.* their lists"),
        ({"small": [Grayscale(3)]}, {}, SchemaError, "Grayscale is not the same for 'small' and 'large'"),
    ],
)
def test_what_is_refused(
    members: dict[str, FastDataset], transforms: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """In one line, when the mixture or its loader is built."""
    with pytest.raises(kind, match=message):
        FastLoader(mixture(members, transforms), 4, **options)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_filters_and_edges_of_their_own(members: dict[str, FastDataset], layout: Any) -> None:
    """Each picture is resampled, turned and padded as its member says: as by a loader of that member alone."""
    own: dict[str, list[Any]] = {
        "large": [RandomRotation((30, 30), fill=3), Resize((12, 12), "bicubic"), Pad(2, fill=(9, 8, 7))],
        "small": [Resize((8, 8), "nearest"), CenterCrop(16, fill=200)],
    }
    got = by_label(FastLoader(mixture(members, own), 6, shuffle=True, threads=2, layout=layout))

    for name, dataset in members.items():
        alone = by_label(FastLoader(dataset, 3, transforms=own[name], layout=layout))
        for label in alone.keys() & got.keys():
            assert torch.equal(alone[label], got[label])
    assert {1, 2} == {label // 100 for label in got}


TARGETS = ("image", "mask", "boxes", "kinds", "points")
MOVES: dict[str, list[Any]] = {
    "a": [RandomCrop(40, pad_if_needed=True, mask_fill=4), KeepBoxes(min_visible=0.4), RandomHorizontalFlip()],
    "b": [RandomApply([RandomRotation(30, mask_fill=9)]), RandomResizedCrop(40, (0.5, 1), interpolation="bicubic")],
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastDataset]:
    """Two stores of pictures with masks, boxes and points, whose labels tell them apart."""
    folder, types = tmp_path_factory.mktemp("scenes"), {name: TYPES[name] for name in (*TARGETS, "label")}
    stores = {}
    for number, name in enumerate(MOVES):
        samples = [{**sample, "label": 10 * number + at} for at, sample in enumerate(make_samples(6))]
        stores[name] = FastDataset(write_fields(folder / f"{name}.lmdb", samples, types))
    return stores


def samples_of(loader: FastLoader) -> dict[int, Any]:
    """The values of each sample of one epoch, by its label."""
    with loader:
        return {
            int(batch["label"][at]): {n: batch[n][at] for n in batch}
            for batch in loader
            for at in range(len(batch["label"]))
        }


def assert_equal(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_boxes_and_points_follow_the_list_of_their_member(scenes: dict[str, FastDataset]) -> None:
    """All fields are those of a loader of the member alone, and what KeepGeometry adds; rules of all come first."""
    rules = [KeepPoints("drop"), KeepGeometry()]
    loader = FastLoader(Mixture(scenes, {"a": 1, "b": 1}, transforms=MOVES), 5, shuffle=True, seed=4, transforms=rules)
    got = samples_of(loader)
    alone = samples_of(FastLoader(scenes["a"], 2, seed=4, transforms=[*rules, *MOVES["a"]]))

    assert alone.keys() == {label for label in got if label < 10}
    for label, sample in alone.items():
        assert_equal(sample, got[label])
    moved = FastDataset(scenes["b"].store.path, Compose([*rules, *MOVES["b"]]))
    assert set(moved[0]) == set(got[10])
    numbers = uniform(np.arange(6, 12), Compose(MOVES["b"]).draws, seed=4, epoch=0)
    joint = Compose([*rules, *MOVES["b"]]).for_fields(scenes["b"].store.schema[n] for n in (*TARGETS, "label"))
    for at in range(6):
        expected = joint.apply(scenes["b"][at], numbers[at])
        assert np.array_equal(np.asarray(expected["image"]), got[10 + at]["image"].permute(1, 2, 0))
        assert np.array_equal(np.asarray(expected["mask"]), got[10 + at]["mask"])
        for name in ("boxes", "points", "geometry"):
            assert np.allclose(expected[name], got[10 + at][name], atol=1e-4)
        assert np.array_equal(expected["kinds"], got[10 + at]["kinds"])


@pytest.mark.parametrize("on_error", ["skip", "zero"])
def test_a_bad_scene(scenes: dict[str, FastDataset], tmp_path: Path, on_error: Any) -> None:
    """The others keep their boxes, masks and points, whichever member they are of."""
    types = {name: TYPES[name] for name in (*TARGETS, "label")}
    samples = [{**sample, "label": 10 + at} for at, sample in enumerate(make_samples(6))]
    path = write_fields(tmp_path / "bad.lmdb", samples, types)
    store = FastDataset(path).store
    span = store.spans("image", np.array([2]))
    start, size = int(span.starts[0]), int(span.sizes[0])
    data = bytearray(path.read_bytes())
    data[start + 16 : start + 30] = bytes(14)  # its header
    path.write_bytes(data)
    assert size > 30
    got = []
    for second in (scenes["b"], FastDataset(path)):
        mixed = Mixture({"a": scenes["a"], "b": second}, {"a": 1, "b": 1}, transforms=MOVES)
        got.append(samples_of(FastLoader(mixed, 4, seed=4, on_error=on_error)))
    good, bad = got
    for label in good.keys() - {12}:
        assert_equal(good[label], bad[label])
    assert (12 in bad) == (on_error == "zero")
    if on_error == "zero":
        assert not bad[12]["image"].any()


@pytest.mark.parametrize("own", [OWN, {"large": [Resize((16, 16))], "small": [CenterCrop(16, fill=9)]}])
def test_a_cache_in_memory(members: dict[str, FastDataset], own: Any) -> None:
    """Epochs of what is kept are those without a cache."""
    plain, cached = (FastLoader(mixture(members, own), 6, seed=3, cache=cache) for cache in (None, "ram"))
    with plain, cached:
        for _ in range(2):
            for one, other in zip(plain, cached, strict=True):
                assert torch.equal(one[0], other[0])
                assert torch.equal(one[1], other[1])


def test_views_of_members(members: dict[str, FastDataset]) -> None:
    """``views=2`` repeats each member's list with numbers of its own, the first as without; repeats join them."""
    once = by_label(FastLoader(mixture(members), 6, seed=3))
    with FastLoader(mixture(members), 6, seed=3, views=2) as loader:
        views = {int(label): pair for images, labels in loader for label, *pair in zip(labels, *images, strict=True)}
    with FastLoader(mixture(members), 6, seed=3, repeats=2) as loader:
        images, labels = next(iter(loader))
    twice = [(2, [ColorJitter(0.3)]), (1, [])]
    with FastLoader(mixture(members), 6, seed=3, views=twice) as loader:
        jittered, _ = next(iter(loader))

    assert once.keys() == views.keys()
    for label, (first, second) in views.items():
        assert torch.equal(once[label], first)
        assert not torch.equal(first, second)
    assert (12, 12) == (len(images), len(labels))
    assert torch.equal(images[:6], torch.stack([once[int(label)] for label in labels[:6]]))
    assert [(6, 3, 16, 16)] * 3 == [tuple(view.shape) for view in jittered]


def test_pictures_of_two_sizes_are_refused(members: dict[str, FastDataset]) -> None:
    """As everywhere, naming two samples."""
    loader = FastLoader(mixture(members, {"large": [CenterCrop(16)], "small": [CenterCrop(12)]}), 6)
    with loader, pytest.raises(SchemaError, match=r"16x16.*12x12"):
        next(iter(loader))


def test_steps_of_one_member_may_have_sizes_of_their_own(members: dict[str, FastDataset]) -> None:
    """With per_source, each batch has the size of its member."""
    own = {"large": [CenterCrop(16)], "small": [CenterCrop(12)]}
    with FastLoader(mixture(members, own, batching="per_source"), 3) as loader:
        sizes = {(int(labels[0]) // 100, images.shape[-1]) for images, labels in loader}
    assert {(1, 16), (2, 12)} == sizes


def test_one_dataset_with_two_lists_is_refused(members: dict[str, FastDataset]) -> None:
    """A sample would have two lists; another FastDataset of the same store is another member."""
    half = Subset(members["large"], range(6))
    with pytest.raises(ValueError, match="'a' and 'b' have samples in common, but different transforms"):
        FastLoader(Mixture({"a": members["large"], "b": half}, {"a": 1, "b": 1}, transforms={"a": [CenterCrop(9)]}), 2)
    again = Subset(FastDataset(members["large"].store.path), range(6))
    own = {"a": [CenterCrop(9)], "b": [Resize((9, 9))]}
    with FastLoader(Mixture({"a": members["large"], "b": again}, {"a": 1, "b": 1}, transforms=own), 4) as loader:
        assert {9} == {images.shape[-1] for images, _ in loader}


def test_mixing_comes_behind(members: dict[str, FastDataset]) -> None:
    """Transforms of batches are those of the loader."""
    labelled = {name: [CenterCrop(12)] for name in members}
    with FastLoader(mixture(members, labelled), 6, transforms=[MixUp(num_classes=300)]) as loader:
        _, labels = next(iter(loader))
    assert (6, 300) == labels.shape
