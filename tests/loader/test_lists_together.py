"""Lists whose elements move with others: masks with their pictures, pictures with pictures, a list with one picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, FieldCollate, SampleError, SchemaError, Writer
from fastio.transforms import (
    ByField,
    ByFraction,
    CenterCrop,
    ColorJitter,
    Compose,
    KeepGeometry,
    Normalize,
    Pick,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    Views,
)
from fastio.transforms.fused import uniform
from fastio.transforms.joint import drawn
from tests.conftest import encode

COUNTS = [2, 0, 1, 3, 0, 4, 1]
CROPS = [RandomResizedCrop(16), RandomHorizontalFlip(), RandomRotation(10, "bilinear")]
SPREAD = 0x1E3779B97F4A7C15  # between the numbers of elements of one sample


def pixels(number: int, scale: int = 1) -> np.ndarray[Any, Any]:
    """A picture of a size of its own, whose parts at equal fractions look alike in any scale."""
    height, width = (20 + number % 7) * scale, (30 - number % 5) * scale
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 120 * np.sin(6 * y / height + number), 255 * x / width, 255 * y / height]
    return np.stack(waves, axis=-1).astype(np.uint8)


def mask_of(number: int) -> np.ndarray[Any, Any]:
    """The mask of a picture: of the same size, and from its pixels."""
    return pixels(number)[:, :, 1] // 30


def write(
    path: Path, counts: Sequence[int] = COUNTS, masks: Sequence[int] | None = None, *, form: str = "PNG", scale: int = 1
) -> Path:
    """Lists of pictures, their masks and maps; one picture with a list of masks of its own, and perhaps a control."""
    fields = {"images": "image[*]", "masks": "mask[*]", "maps": "image[*]", "image": "image", "parts": "mask16[*]"}
    with Writer(path, {**fields, "control": "image?", "label": "label"}, overwrite=True) as out:
        for i, (count, others) in enumerate(zip(counts, masks or counts, strict=True)):
            sample = {
                "images": [encode(pixels(10 * i + j), form) for j in range(count)],
                "masks": [encode(mask_of(10 * i + j), "PNG") for j in range(others)],
                "maps": [encode(pixels(10 * i + j, scale), form) for j in range(count)],
                "image": encode(pixels(i), form),
                "parts": [Image.fromarray(mask_of(i).astype(np.uint16) * 999) for _ in range(count)],
                "control": encode(pixels(i, scale), form) if i % 2 else None,
                "label": i,
            }
            out.write(sample, key=f"s{i}")
    return path


def as_row(value: Any) -> Any:
    """A picture or mask as a batch has it."""
    array = np.array(value)
    return torch.from_numpy(array.transpose(2, 0, 1) if array.ndim == 3 else array.astype(np.int64))


def expected_rows(dataset: FastDataset, index: int, place: int, steps: Any, seed: int, epoch: int) -> dict[str, Any]:
    """What Pillow makes of the picture and the mask at one place, by the numbers of sample and place."""
    ids = np.array([(index + place * SPREAD) & ((1 << 63) - 1)])
    compose = Compose(steps)
    sample = dataset[index]
    fields = [dataset.store.schema[name].element for name in ("images", "masks")]
    values = {"images": sample["images"][place], "masks": sample["masks"][place]}
    joint: Any = compose.for_fields(fields)
    return dict(joint.apply(values, uniform(ids, compose.draws, seed=seed, epoch=epoch)[0]))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from(["PNG", "TIFF"]),
    st.booleans(),
)
def test_masks_move_with_their_pictures(
    tmp_path: Path, counts: list[int], size: int, epoch: int, form: str, is_keyed: bool
) -> None:
    """Each mask gets the crop of the picture at its place: what Pillow makes of both with the same numbers."""
    dataset = FastDataset(write(tmp_path / "s.lmdb", counts, form=form))
    chosen = FastDataset(dataset.store, fields=("images", "masks", "label"))
    steps: Any = {("images", "masks"): CROPS} if is_keyed else CROPS
    with FastLoader(chosen, size, shuffle=True, seed=3, transforms=steps) as loader:
        loader.set_epoch(epoch)
        batches = list(loader)
        assert loader.receipt().is_exact
    for (images, image_counts), (masks, mask_counts), labels in batches:
        assert image_counts.tolist() == mask_counts.tolist() == [counts[label] for label in labels.tolist()]
        assert images.shape[1:] == (3, 16, 16)
        assert masks.shape[1:] == (16, 16)
        rows = iter(zip(images, masks, strict=True))
        for label, count in zip(labels.tolist(), image_counts.tolist(), strict=True):
            for place in range(count):
                image, mask = next(rows)
                expected = expected_rows(dataset, label, place, CROPS, 3, epoch)
                assert torch.equal(as_row(expected["masks"]), mask.long())
                # A bilinear warp may differ by a level.
                assert (as_row(expected["images"]).int() - image.int()).abs().max() <= 1


def test_a_list_moves_with_one_picture(tmp_path: Path) -> None:
    """Masks of a sample with one picture follow that; a control that may be missing follows the picture of its key."""
    path = write(tmp_path / "s.lmdb")
    instances = FastDataset(path, fields=("image", "parts", "label"))
    with FastLoader(instances, 3, transforms=CROPS) as loader:
        batches = list(loader)
    with FastLoader(FastDataset(path, fields=("image", "label")), 3, transforms=CROPS) as loader:
        alone = list(loader)
    for (images, (parts, counts), labels), (expected, _) in zip(batches, alone, strict=True):
        assert torch.equal(expected, images)
        assert parts.dtype == torch.int32
        of_samples = parts.split(counts.tolist())
        assert [COUNTS[label] for label in labels.tolist()] == list(map(len, of_samples))
        for own in of_samples:
            assert all(torch.equal(own[0], each) for each in own)
    pairs = FastDataset(path, fields=("image", "control", "label"))
    with FastLoader(pairs, 7, transforms={("image", "control"): CROPS}) as loader:
        ((images, (controls, counts), _),) = loader
    assert [i % 2 for i in range(7)] == counts.tolist()
    assert torch.equal(images[counts > 0], controls)  # the same pictures


@pytest.mark.parametrize("scale", [1, 2])
def test_pictures_of_two_lists(tmp_path: Path, scale: int) -> None:
    """Lists under one key are cropped pair by pair, and by fraction where sizes differ; colours stay apart."""
    path = write(tmp_path / "s.lmdb", scale=scale)
    dataset = FastDataset(path, fields=("images", "maps", "masks", "label"))
    steps = [RandomResizedCrop(16), RandomHorizontalFlip(), *([ByFraction()] if scale > 1 else [])]
    finish = [Normalize([0.5] * 3, [0.25] * 3)]
    transforms: Any = {("images", "maps", "masks"): steps, "images": [*finish]}
    with FastLoader(dataset, 4, transforms=transforms) as loader:
        for (images, counts), (maps, map_counts), (masks, _), _ in loader:
            assert torch.equal(counts, map_counts)
            assert len(images) == len(masks) == int(counts.sum())
            assert ((images * 0.25 + 0.5) * 255 - maps).abs().max() < (25 if scale > 1 else 1)
    if scale > 1:
        with (
            FastLoader(dataset, 4, transforms={("images", "maps", "masks"): steps[:2]}) as loader,
            pytest.raises(SampleError, match=r"field 'maps' 1 of 2: is 40x60, but 'images' of the same sample 20x30"),
        ):
            list(loader)


def test_other_counts_are_bad_samples(tmp_path: Path) -> None:
    """A sample with more or fewer masks than pictures is named; "zero" gives it as many blank masks as pictures."""
    masks = [2, 1, 1, 2, 0, 5, 1]
    path = write(tmp_path / "s.lmdb", COUNTS, masks)
    dataset = FastDataset(path, fields=("images", "masks", "label"))
    bad = [i for i, count in enumerate(COUNTS) if count != masks[i]]
    with FastLoader(dataset, 3, transforms=CROPS) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    assert ("s1", 1, "masks") == (caught.value.key, caught.value.index, caught.value.field)
    assert "s.lmdb[1] ('s1'), field 'masks': has 1, but 'images' 0: expected equally many" in str(caught.value)
    whole = FastDataset(write(tmp_path / "t.lmdb"), fields=("images", "masks", "label"))
    with FastLoader(whole, 7, transforms=CROPS) as loader:
        ((images, counts), (expected, _), _), *_ = loader
    with FastLoader(dataset, 3, transforms=CROPS, on_error="skip") as loader:
        batches = list(loader)
        assert [f"s{i}" for i in bad] == [error.key for error in loader.skipped]
        assert not loader.receipt().is_exact
    good = [i for i in range(7) if i not in bad]
    assert good == [label for *_, labels in batches for label in labels.tolist()]
    assert [COUNTS[i] for i in good] == [n for _, (_, counts), _ in batches for n in counts.tolist()]
    rows = [expected.split(counts.tolist())[i] for i in good]
    assert torch.equal(torch.cat(rows), torch.cat([masks for _, (masks, _), _ in batches]))
    with FastLoader(dataset, 7, transforms=CROPS, on_error="zero") as loader:
        (((kept, kept_counts), (blanked, mask_counts), _),) = loader
    assert torch.equal(images, kept)
    assert COUNTS == kept_counts.tolist() == mask_counts.tolist()
    for i, (one, other) in enumerate(zip(expected.split(COUNTS), blanked.split(COUNTS), strict=True)):
        assert not other.any() if i in bad else torch.equal(one, other)


def test_resumed_on_other_ranks(tmp_path: Path) -> None:
    """What one rank has begun, two finish in batches of another size, with the same pictures and masks."""
    path = write(tmp_path / "s.h5", [i % 4 for i in range(20)])
    dataset = FastDataset(path, fields=("images", "masks", "label"))

    def by_label(batches: Sequence[Any]) -> dict[int, tuple[Any, Any]]:
        found = {}
        for (images, counts), (masks, _), labels in batches:
            parts = zip(images.split(counts.tolist()), masks.split(counts.tolist()), strict=True)
            for label, (own, own_masks) in zip(labels.tolist(), parts, strict=True):
                assert label not in found
                found[label] = (own.tolist(), own_masks.tolist())
        return found

    with FastLoader(dataset, 3, shuffle=True, transforms=CROPS) as loader:
        whole = list(loader)
    with FastLoader(dataset, 3, shuffle=True, transforms=CROPS) as loader:
        batches = list(islice(loader, 2))
        state = loader.state_dict()
    for rank in range(2):
        with FastLoader(dataset, 2, shuffle=True, transforms=CROPS, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            batches += list(loader)
    assert by_label(whole) == by_label(batches)


def test_batches_without_elements(tmp_path: Path) -> None:
    """Masks of no picture have the size of others: batches can be joined."""
    path = write(tmp_path / "s.lmdb", [0, 0, 2])
    for fields in (("images", "masks"), ("image", "parts")):
        with FastLoader(FastDataset(path, fields=fields), 1, transforms=[Resize(20), CenterCrop(16)]) as loader:
            batches = list(loader)
        assert [(0, 16, 16), (0, 16, 16), (2, 16, 16)] == [tuple(batch[1][0].shape) for batch in batches]


def test_picked_together(tmp_path: Path) -> None:
    """A Pick of pictures and masks keeps pairs; one that splits them is refused, and so is what is not known."""
    path = write(tmp_path / "s.lmdb")
    dataset = FastDataset(path, fields=("images", "masks", "label"))
    steps = [RandomCrop(12), RandomHorizontalFlip()]
    with FastLoader(dataset, 7, transforms=[*steps, Pick("images", "masks")]) as loader:
        (((images, counts), (masks, mask_counts), _),) = loader
    assert [min(count, 1) for count in COUNTS] == counts.tolist() == mask_counts.tolist()
    assert ((images[:, 1] // 30).int() - masks).abs().max() == 0
    unfit: list[tuple[Any, Any, str]] = [
        (("images", "masks"), [*steps, Pick("images")], "each element of 'masks' moves with 'images', but Pick"),
        (
            ("images", "maps", "masks"),
            steps,
            "not known with which picture each mask of 'masks' moves: .* images, maps",
        ),
        (("images", "masks"), [*steps, KeepGeometry()], "add geometry, but lists of encoded pictures in 'images'"),
        (("images", "masks"), {"images": steps, "masks": steps}, "masks would move apart from images"),
        (("images", "masks"), {"images": steps}, "masks would stay where pictures move"),
        (("images", "masks"), [ColorJitter(0.1), RandomCrop(12)], "would change pictures without masks"),
    ]
    for fields, transforms, sentence in unfit:
        with pytest.raises((SchemaError, ValueError), match=sentence):
            FastLoader(FastDataset(path, fields=fields), 4, transforms=transforms)


def test_boxes_beside_lists(tmp_path: Path) -> None:
    """Boxes, points and a single mask that could not follow pictures of a list are refused."""
    fields = {"images": "image[*]", "boxes": "xyxy", "mask": "mask"}
    with Writer(tmp_path / "s.lmdb", fields) as out:
        boxes = np.array([[1, 1, 9, 9]], np.float32)
        out.write({"images": [encode(pixels(0), "PNG")], "boxes": boxes, "mask": Image.fromarray(mask_of(0))})
    for names in (("images", "boxes"), ("images", "mask")):
        dataset = FastDataset(tmp_path / "s.lmdb", fields=names)
        with pytest.raises(SchemaError, match=f"'images' are moved each by itself, and {names[1]} could not follow"):
            FastLoader(dataset, 1, transforms=CROPS)
        with pytest.raises(SchemaError, match="could not follow: leave it out by fields="):
            FastDataset(dataset.store, fields=names, transform=Compose(CROPS))[0]
        assert 2 == len(FastDataset(dataset.store, fields=names, transform=Compose([ColorJitter(0.1)]))[0])
        with FastLoader(dataset, 1, transforms=[ColorJitter(0.1)]) as loader:
            assert 1 == len(list(loader))


def test_masks_of_another_size(tmp_path: Path) -> None:
    """A mask that is not as large as its picture is a bad sample, which names the element."""
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]", "masks": "mask[*]"}) as out:
        large, small = encode(pixels(0), "PNG"), Image.fromarray(mask_of(1))
        out.write({"images": [large, large], "masks": [Image.fromarray(mask_of(0)), small]})
    with (
        FastLoader(tmp_path / "s.lmdb", 1, transforms=CROPS) as loader,
        pytest.raises(SampleError, match="field 'masks' 2 of 2: it is 21x29, but its picture 20x30"),
    ):
        list(loader)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans(), st.sampled_from([None, "tuple"]))
def test_one_sample(tmp_path: Path, counts: list[int], is_keyed: bool, form: str | None) -> None:
    """FastDataset transforms each element with the numbers of its place, and a mask with its picture."""
    names = ("images", "masks", "label")
    plain = FastDataset(write(tmp_path / "s.lmdb", counts))
    transform: Any = ByField({("images", "masks"): CROPS}) if is_keyed else Compose(CROPS)
    dataset = FastDataset(plain.store, fields=names, transform=transform)
    draws = Compose(CROPS).draws
    element_fields = [plain.store.schema[name].element for name in ("images", "masks")]
    for index, count in enumerate(counts):
        torch.manual_seed(index)
        numbers = drawn(draws * max(1, count)).reshape(max(1, count), draws)
        torch.manual_seed(index)
        images, masks, label = dataset[index]
        assert (count, count, index) == (len(images), len(masks), label)
        for place in range(count):
            own = {name: plain[index][name][place] for name in ("images", "masks")}
            expected = Compose(CROPS).for_fields(element_fields).apply(own, numbers[place])
            assert np.array_equal(expected["images"], images[place])
            assert np.array_equal(expected["masks"], masks[place])


def test_samples_of_other_forms(tmp_path: Path) -> None:
    """A value alone, a list that follows one picture, other counts, and views, in FastLoader and in a DataLoader."""
    path = write(tmp_path / "s.lmdb", COUNTS, [2, 1, 1, 2, 0, 4, 1])
    resize: Any = [Resize(20), CenterCrop(16)]
    (expected, counts), *_ = FastLoader(FastDataset(path, fields="images"), 7, transforms=resize)
    plain = FastDataset(path, fields="images", transform=Compose(resize))
    ((images, plain_counts),) = FastLoader(plain, 7)
    assert torch.equal(expected, images)
    assert torch.equal(counts, plain_counts)
    pairs = FastDataset(path, fields=("image", "parts", "control"), transform=ByField({("image", "parts"): CROPS}))
    image, parts, control = pairs[3]
    assert [(16, 16)] * 3 == [part.size for part in parts]
    assert [(16, 16), (27, 23)] == [image.size, control.size]
    bad = FastDataset(path, fields=("images", "masks", "label"), transform=Compose(resize))
    with pytest.raises(SampleError, match=r"s.lmdb\[1\] \('s1'\): field 'masks': has 1, but 'images' 0: expected eq"):
        bad[1]
    with (
        FastLoader(bad, 7, on_error="skip") as loader,
        FastLoader(
            FastDataset(path, fields=("images", "masks", "label")), 7, transforms=resize, on_error="skip"
        ) as native,
    ):
        for one, other in zip(native, loader, strict=True):
            for (rows, counts), (others, other_counts) in zip(one[:2], other[:2], strict=True):
                assert torch.equal(rows, others)
                assert torch.equal(counts, other_counts)
            assert torch.equal(one[2], other[2])
        assert [error.key for error in native.skipped] == [error.key for error in loader.skipped] == ["s1", "s3"]
    views: Any = [(1, resize), (1, [Resize(20), CenterCrop(12)])]
    fields = ("images", "control", "label")
    wishes: list[Any] = [None, {"images": "pad", "control": "pad"}, {"images": "list", "control": "list"}]
    for collate in wishes:
        seen = FastDataset(path, fields=fields, transform=Views(views))
        with FastLoader(FastDataset(path, fields=fields), 4, views=views, collate=collate) as loader:
            expected_views = list(loader)
        with FastLoader(seen, 4, collate=collate) as loader:
            assert same(expected_views, list(loader))
        assert same(expected_views, list(DataLoader(seen, 4, collate_fn=FieldCollate(seen, collate))))


def same(one: Any, other: Any) -> bool:
    """Whether two nests of tensors are equal."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
