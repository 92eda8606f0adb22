"""One loader with batches of several shapes: pixels, states, ranks, receipts, bad samples, masks and boxes."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, SampleError, ShapeBucketSampler
from fastio.transforms import (
    ColorJitter,
    Compose,
    KeepCrop,
    Normalize,
    RandomHorizontalFlip,
    ResizeToBucket,
    ToDtype,
)
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.loader.sized_pictures import COUNT, write_pictures

SHAPES = [(24, 16), (16, 16), (16, 24)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """41 pictures."""
    return write_pictures(tmp_path_factory.mktemp("shapes") / "a.lmdb")


def sampler_of(dataset: FastDataset, **options: Any) -> ShapeBucketSampler:
    """Batches of five in one of three shapes."""
    return ShapeBucketSampler(dataset.sizes(), **{"shapes": SHAPES, "batch_size": 5, "seed": 2} | options)


def loader_of(dataset: FastDataset, *, crop: Any = "random", **options: Any) -> FastLoader:
    """A loader of such batches, crops and flips at random."""
    own = {name: options.pop(name) for name in ("rank", "world_size", "batch_size") if name in options}
    sampler = sampler_of(dataset, **own)
    transforms = [ResizeToBucket(sampler, crop=crop), RandomHorizontalFlip()]
    return FastLoader(dataset, batch_sampler=sampler, **{"transforms": transforms, "seed": 4, "threads": 2} | options)


def test_batches_have_the_shape_of_their_pictures(store: Path) -> None:
    """Each picture comes once, in the shape of its bucket, and its pixels are those of the transforms by Pillow."""
    dataset = FastDataset(store)
    sampler = sampler_of(dataset)
    resize = ResizeToBucket(sampler)
    loader = FastLoader(dataset, batch_sampler=sampler, transforms=[resize])
    labels = []
    for images, indices in loader:
        (bucket,) = set(sampler.buckets[indices.numpy()].tolist())
        assert (len(indices), 3, *SHAPES[bucket]) == images.shape
        expected = [np.array(resize(dataset[index][0])) for index in indices.tolist()]
        assert np.array_equal(np.stack(expected), images.permute(0, 2, 3, 1).numpy())
        labels += indices.tolist()

    assert sorted(labels) == list(range(COUNT))
    assert loader.receipt().is_exact


def test_a_crop_does_not_depend_on_its_batch(store: Path) -> None:
    """Batches of another size, on other ranks, have the same pixels of each sample."""
    dataset = FastDataset(store)

    def by_index(loader: FastLoader) -> dict[int, bytes]:
        return {
            i: image.numpy().tobytes()
            for images, labels in loader
            for i, image in zip(labels.tolist(), images, strict=True)
        }

    alone = by_index(loader_of(dataset))
    ranks = [by_index(loader_of(dataset, rank=rank, world_size=3, batch_size=2)) for rank in range(3)]

    assert {index: pixels for rank in ranks for index, pixels in rank.items()} == alone


def test_ranks_have_one_shape_at_each_step_and_exact_receipts(store: Path) -> None:
    """Three ranks have equally many batches of equal shapes; what is repeated counts once."""
    dataset = FastDataset(store)
    loaders = [loader_of(dataset, rank=rank, world_size=3) for rank in range(3)]
    steps = list(zip(*loaders, strict=True))
    plan = sampler_of(dataset, rank=0, world_size=3).plan(0)

    assert plan.repeated > 0
    assert all(len({images.shape for images, _ in step}) == 1 for step in steps)
    indices = torch.cat([labels for step in steps for _, labels in step])
    assert len(indices) == COUNT + plan.repeated
    parts = [loader.receipt(own=True) for loader in loaders]
    assert sum(part.samples for part in parts) == COUNT
    assert sum(part.repeated for part in parts) == plan.repeated


@pytest.mark.parametrize("worlds", [(1, 1), (3, 2), (2, 5)])
def test_a_state_goes_on_with_other_ranks(store: Path, worlds: tuple[int, int]) -> None:
    """After some steps, other ranks with other batches give all that is left, once."""
    dataset = FastDataset(store)
    first = [loader_of(dataset, rank=rank, world_size=worlds[0], batch_size=2) for rank in range(worlds[0])]
    had = {i for loader in first for _, labels in islice(loader, 3) for i in labels.tolist()}
    state = json.loads(json.dumps(first[0].state_dict()))
    second = [loader_of(dataset, rank=rank, world_size=worlds[1]) for rank in range(worlds[1])]
    left = set()
    for loader in second:
        loader.load_state_dict(state)
        left |= {i for _, labels in loader for i in labels.tolist()}

    assert had | left == set(range(COUNT))
    assert not had & left


def test_a_state_of_other_shapes_is_refused(store: Path) -> None:
    """Other shapes, and another crop, would make other pixels: the state names what differs."""
    dataset = FastDataset(store)
    state = loader_of(dataset).state_dict()
    with pytest.raises(ValueError, match=r"transforms is .*crop='random'.* in the state and .*crop='center'"):
        loader_of(dataset, crop="center").load_state_dict(state)
    sampler = sampler_of(dataset, shapes=SHAPES[:2])
    with pytest.raises(ValueError, match="shapes is"):
        FastLoader(dataset, batch_sampler=sampler, transforms=[ResizeToBucket(sampler)]).load_state_dict(state)


@pytest.mark.parametrize("on_error", ["skip", "zero", "raise"])
def test_bad_samples(tmp_path: Path, on_error: Any) -> None:
    """Pictures with bad pixels or headers are skipped, zeroed or raised, in whatever batch they lie."""
    dataset = FastDataset(write_pictures(tmp_path / "bad.lmdb", bad=[4, 9, 10, 30]))
    loader = loader_of(dataset, on_error=on_error)
    if on_error == "raise":
        with pytest.raises(SampleError):
            list(loader)
        return
    found = {i: image for images, labels in loader for i, image in zip(labels.tolist(), images, strict=True)}

    assert set(range(COUNT)) - {4, 9, 10, 30} == {index for index, image in found.items() if image.any()}
    assert ({4, 9, 10, 30} <= found.keys()) == (on_error == "zero")
    assert len(loader.skipped) == 4 if on_error == "skip" else True


def test_sizes_and_crops_come_last_in_a_tuple(store: Path) -> None:
    """KeepCrop adds original_size and crop, (height, width) and (top, left), which fit the batch's own size."""
    dataset = FastDataset(store, fields=("label", "image"))
    sampler = sampler_of(dataset)
    loader = FastLoader(dataset, batch_sampler=sampler, transforms=[ResizeToBucket(sampler), KeepCrop()])
    for labels, images, sizes, crops in loader:
        assert np.array_equal(dataset.sizes()[labels.numpy()], sizes.numpy())
        assert (len(labels), 2) == crops.shape
        scale = (torch.tensor(images.shape[2:]) / sizes).amax(1)
        spare = torch.round(sizes * scale[:, None]).long() - torch.tensor(images.shape[2:])
        assert torch.equal(spare.clamp(min=0) // 2, crops)
    alone = Compose([ResizeToBucket(sampler), KeepCrop()])
    label, _, size, crop = FastDataset(store, alone, fields=("label", "image"))[7]

    assert (label, dataset.sizes()[7].tolist()) == (7, size.tolist())
    assert crop.dtype == np.int64


def test_pairs_have_no_place_for_a_crop(store: Path) -> None:
    """A pair of picture and label says how to get a tuple."""
    dataset = FastDataset(store)
    sampler = sampler_of(dataset)
    with pytest.raises(ValueError, match=r"transforms add original_size and crop, but samples are a pair"):
        FastLoader(dataset, batch_sampler=sampler, transforms=[ResizeToBucket(sampler), KeepCrop()])


def test_masks_boxes_and_crops_of_dicts(tmp_path: Path) -> None:
    """Masks have the picture's shape, boxes move with it, and dicts get two fields more: as for single samples."""
    names = ["image", "mask", "boxes", "label"]
    path = write_fields(tmp_path / "many.h5", make_samples(9), {name: TYPES[name] for name in names})
    dataset = FastDataset(path)
    sampler = ShapeBucketSampler(dataset.sizes(), shapes=[(24, 18), (24, 24)], batch_size=4, shuffle=False)
    resize = Compose([ResizeToBucket(sampler), KeepCrop()])
    loader = FastLoader(dataset, batch_sampler=sampler, transforms=[*resize.transforms])
    alone = FastDataset(path, resize)
    for batch, indices in zip(loader, sampler.plan(0).slices(), strict=True):
        for place, index in enumerate(sampler.plan(0).indices[indices].tolist()):
            expected = alone[index]
            assert np.array_equal(np.array(expected["image"]), batch["image"][place].permute(1, 2, 0).numpy())
            assert np.array_equal(np.array(expected["mask"]), batch["mask"][place].numpy())
            assert np.allclose(expected["boxes"], batch["boxes"][place].numpy())
            for name in ("original_size", "crop"):
                assert expected[name].tolist() == batch[name][place].tolist()


def test_views_of_buckets(store: Path) -> None:
    """Two crops of one decode, each of its batch's shape, and transforms of batches after them."""
    dataset = FastDataset(store)
    sampler = sampler_of(dataset)
    finish = [ColorJitter(0.4), ToDtype(torch.float32, scale=True), Normalize([0.5] * 3, [0.5] * 3)]
    transforms = [ResizeToBucket(sampler, crop="random"), *finish]
    for views, labels in FastLoader(dataset, batch_sampler=sampler, views=2, transforms=transforms):
        shape = SHAPES[int(sampler.buckets[labels[0]])]
        assert [view.shape for view in views] == [(len(labels), 3, *shape)] * 2
        assert views[0].dtype == torch.float32


@pytest.mark.parametrize("crop", ["center", "random"])
def test_from_a_cache(store: Path, crop: Any) -> None:
    """A cache in memory gives the same batches, also where finished pictures have several shapes."""
    dataset = FastDataset(store)
    batches = zip(loader_of(dataset, crop=crop), loader_of(dataset, crop=crop, cache="ram"), strict=True)

    assert all(torch.equal(own, cached) for (own, _), (cached, _) in batches)


def test_in_the_unchanged_script(store: Path) -> None:
    """A DataLoader with the sampler and the dataset's transform makes the same batches."""
    dataset = FastDataset(store)
    sampler = sampler_of(dataset)
    plain = FastDataset(store, lambda picture: torch.from_numpy(np.array(ResizeToBucket(sampler)(picture))))
    ours = FastLoader(dataset, batch_sampler=sampler_of(dataset), transforms=[ResizeToBucket(sampler)])
    for (expected, labels), (images, ours_labels) in zip(DataLoader(plain, batch_sampler=sampler), ours, strict=True):
        assert labels.tolist() == ours_labels.tolist()
        assert torch.equal(expected.permute(0, 3, 1, 2), images)


def test_a_subset_has_sizes_of_its_own(store: Path) -> None:
    """With indices=, the sampler takes the sizes of these samples, and their indices come."""
    dataset = FastDataset(store)
    part = np.arange(3, 40, 2)
    sampler = ShapeBucketSampler(dataset.sizes()[part], shapes=SHAPES, batch_size=4)
    loader = FastLoader(dataset, indices=part, batch_sampler=sampler, transforms=[ResizeToBucket(sampler)])

    assert sorted(i for _, labels in loader for i in labels.tolist()) == part.tolist()
    assert np.array_equal(dataset.sizes()[part], loader.dataset.sizes())
    assert loader.receipt().is_exact


def test_batches_of_all_shapes_are_refused(store: Path) -> None:
    """Without a sampler by shape, or with one of other shapes, the line says what to pass."""
    dataset = FastDataset(store)
    with pytest.raises(ValueError, match=r"pictures of 3 shapes, .*: pass batch_sampler=ShapeBucketSampler"):
        FastLoader(dataset, 4, transforms=[ResizeToBucket(SHAPES)])
    with pytest.raises(ValueError, match=r"different shapes: write ResizeToBucket\(sampler\)"):
        FastLoader(dataset, batch_sampler=sampler_of(dataset), transforms=[ResizeToBucket(SHAPES[:2])])

    assert len(list(FastLoader(dataset, 10, transforms=[ResizeToBucket([(9, 7)])]))) == 5
