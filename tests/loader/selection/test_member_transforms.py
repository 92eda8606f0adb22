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
    Grayscale,
    KeepGeometry,
    MixUp,
    Normalize,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
)
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
    with pytest.raises(SchemaError, match=r"of member 'b' add the field 'geometry'.*: leave KeepGeometry"):
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
        ({"small": [RandomCrop(8)]}, {"cache": "ram"}, ValueError, "cache='ram': not for a Mixture whose members"),
        ({"small": [RandomCrop(8)]}, {"views": 2}, ValueError, "views or repeats: not for a Mixture whose members"),
        ({"small": [Grayscale(3)]}, {}, SchemaError, "Grayscale is not the same for 'small' and 'large'"),
        (
            {"large": [Resize((8, 8))], "small": [Resize((8, 8), "bicubic")]},
            {},
            SchemaError,
            "'small' resamples by 'bicubic', but 'large' by 'bilinear'",
        ),
    ],
)
def test_what_is_refused(
    members: dict[str, FastDataset], transforms: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """In one line, when the mixture or its loader is built."""
    with pytest.raises(kind, match=message):
        FastLoader(mixture(members, transforms), 4, **options)


def test_edges_of_two_colours_are_refused(members: dict[str, FastDataset]) -> None:
    """In the first batch that has both; edges in one member alone are fine."""
    large, small = [CenterCrop(16), Pad(2, fill=9)], [CenterCrop(16), Pad(2, fill=8)]
    message = r"\(9,\), 0\) in member 'large', but .*\(8,\), 0\) in 'small'"
    loader = FastLoader(mixture(members, {"large": large, "small": small}), 6)
    with loader, pytest.raises(SchemaError, match=message):
        next(iter(loader))
    images = by_label(FastLoader(mixture(members, {"large": large, "small": [CenterCrop(20)]}), 6))
    assert all((9 == image[:, 0, 0]).all() for label, image in images.items() if label < 200)


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
