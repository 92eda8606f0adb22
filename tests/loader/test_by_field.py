"""Transforms by field: which fields move together, which draw apart, and pictures of several sizes in a sample."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader, FieldCollate, SampleError, SchemaError, Writer, beside
from fastio.transforms import (
    ByField,
    ByFraction,
    CenterCrop,
    ColorJitter,
    Compose,
    KeepGeometry,
    MixUp,
    Normalize,
    PerBatch,
    PerSample,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
)
from tests.conftest import encode

CROPS = [RandomResizedCrop(16), RandomHorizontalFlip()]
GRADED = [ColorJitter(0.5, 0.5), Normalize([0.5] * 3, [0.2] * 3)]
NAMES = ("image", "control", "mask", "ref", "boxes", "classes", "label")


def smooth(number: int, height: int, width: int) -> np.ndarray[Any, Any]:
    """A picture whose parts at equal fractions look alike in any size."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 120 * np.sin(6 * y / height + number), 255 * x / width, 255 * y / height]
    return np.stack(waves, axis=-1).astype(np.uint8)


def write(path: Path, *, scale: int = 1, count: int = 8, form: str = "PNG") -> Path:
    """A store of pictures, their control and reference pictures, masks, boxes and classes; controls may be larger."""
    fields = {"image": "image", "control": "image", "mask": "mask", "ref": "image", "images": "image[*]"}
    fields |= {"boxes": "xyxy", "classes": "int64[*] per boxes", "label": "label"}
    with Writer(path, fields, overwrite=True) as out:
        for i in range(count):
            height, width = 40 + i, 44 - i
            image = encode(smooth(i, height, width), form)
            mask = smooth(i, height, width)[:, :, 1] // 64
            sample = {
                "image": image,
                "control": encode(smooth(i, height * scale, width * scale), form),
                "mask": encode(mask, "PNG"),
                "ref": image,
                "images": [image] * (i % 3),
                "boxes": np.array([[1, 2, 30, 35], [5, 5, 9, 9]], np.float32),
                "classes": [i, i + 1],
                "label": i,
            }
            out.write(sample, key=f"s{i}")
    return path


def batches(dataset: Any, transforms: Any, size: int = 4, **options: Any) -> list[Any]:
    """All batches of an epoch."""
    with FastLoader(dataset, size, transforms=transforms, **options) as loader:
        return list(loader)


def joined(found: list[Any], name: str) -> Any:
    """A field of all batches, in the order of labels."""
    order = torch.cat([torch.as_tensor(batch["label"]) for batch in found]).argsort()
    values = [value for batch in found for value in batch[name]]
    return [torch.as_tensor(values[i]) for i in order.tolist()]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Whether all tensors of two lists are equal."""
    return len(first) == len(second) and all(map(torch.equal, first, second))


def test_together_and_apart(tmp_path: Path) -> None:
    """Fields of one key get what one list gives them; what each gets alone follows; others draw for themselves."""
    path = write(tmp_path / "s.lmdb")
    by_field: Any = {("image", "control", "mask", "boxes"): CROPS, "image": GRADED, "ref": CROPS, "images": CROPS}
    found = batches(path, by_field)
    names = ("image", "control", "mask", "boxes", "classes", "label")
    together = [dict(zip(names, batch, strict=True)) for batch in batches(FastDataset(path, fields=names), CROPS)]
    for name in names[1:]:
        assert equal(joined(together, name), joined(found, name))
    alone = batches(FastDataset(path, fields=("image", "label")), [*CROPS, *GRADED])
    assert equal([image for images, _ in alone for image in images], joined(found, "image"))
    sets = FastDataset(path, fields=("images", "label"))
    ((expected, _), _), ((lists, _), _) = batches(sets, CROPS, 8)[0], batches(sets, {"images": CROPS}, 8)[0]
    assert torch.equal(expected, lists)
    assert not torch.equal(lists[:3], found[0]["images"])  # drawn apart, too
    assert not equal(joined(found, "control"), joined(found, "ref"))  # the same picture, with numbers of its own
    assert {torch.uint8} == {batch[name].dtype for batch in found for name in ("control", "ref")}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3), st.sampled_from([".lmdb", ".tar"]), st.booleans())
def test_the_samples_one_by_one(tmp_path: Path, size: int, epoch: int, seed: int, suffix: str, is_led: bool) -> None:
    """A batch of any size has what ByField gives of each sample with the same numbers, in any order and epoch."""
    path = write(tmp_path / f"s{suffix}", count=5)
    steps = [RandomResizedCrop(16), RandomHorizontalFlip(), RandomRotation(10)]
    key = ("image", "control", "mask", "boxes") if is_led else ("control", "image", "mask", "boxes")
    by_field: Any = {key: steps, "ref": [Resize(20), CenterCrop(16)]}
    dataset = FastDataset(path, fields=NAMES)
    with FastLoader(dataset, size, shuffle=True, seed=seed, transforms=by_field) as loader:
        loader.set_epoch(epoch)
        found = [dict(zip(NAMES, batch, strict=True)) for batch in loader]
        assert loader.receipt().is_exact
    with FastLoader(dataset, 5, seed=seed, transforms={key: steps, "ref": [Resize(20), CenterCrop(16)]}) as loader:
        loader.set_epoch(epoch)
        (whole,) = loader
    for name, values in zip(NAMES, whole, strict=True):
        assert equal(list(map(torch.as_tensor, values)), joined(found, name))
    joint = Compose(steps).for_fields([dataset.store.schema[name] for name in NAMES if name != "ref"])
    sample = dict(zip(NAMES, FastDataset(path, fields=NAMES)[3], strict=True))
    torch.manual_seed(epoch)
    expected = joint({name: value for name, value in sample.items() if name != "ref"})
    torch.manual_seed(epoch)
    image, control, mask, ref, boxes, *_ = FastDataset(path, fields=NAMES, transform=ByField(by_field))[3]
    assert np.array_equal(expected["image"], image)
    assert np.array_equal(expected["control"], control)
    assert np.array_equal(expected["mask"], mask)
    assert np.array_equal(expected["boxes"], boxes)
    assert np.array_equal(CenterCrop(16)(Resize(20)(sample["ref"])), ref)


@pytest.mark.parametrize("scale", [2, 3])
def test_by_fraction(tmp_path: Path, scale: int) -> None:
    """Pictures of another size get the part at the same fractions; without the rule, such a sample is bad."""
    path, names = write(tmp_path / "s.lmdb", scale=scale, form="JPEG"), ("image", "control", "mask", "label")
    dataset = FastDataset(path, fields=names)
    small = FastDataset(write(tmp_path / "t.lmdb", form="JPEG"), fields=names)
    for steps in ([*CROPS, RandomRotation(20)], [RandomCrop(24)], [Resize(24), CenterCrop(16), RandomHorizontalFlip()]):
        (expected,) = batches(small, steps, 8)
        for transforms in ([*steps, ByFraction()], {("image", "control", "mask"): [ByFraction(), *steps]}):
            images, controls, masks, _ = batches(dataset, transforms, 8)[0]
            assert torch.equal(expected[0], images)
            assert images.shape == controls.shape
            assert 5 > (controls.float() - images.float()).abs().mean()
            assert torch.equal(expected[2], masks)
            smaller = batches(dataset, transforms, 3)
            assert torch.equal(controls, torch.cat([batch[1] for batch in smaller]))
    two = FastDataset(path, fields=("image", "control", "label"))
    with pytest.raises(SampleError, match="pictures that are transformed together must have one size"):
        batches(two, {("image", "control"): CROPS})
    apart = batches(two, {"image": CROPS, "control": CROPS})
    assert (4, 3, 16, 16) == apart[0][0].shape == apart[0][1].shape
    assert 15 < (apart[0][0].float() - apart[0][1].float()).abs().mean()


def test_masks_by_fraction(tmp_path: Path) -> None:
    """Masks of a store beside the pictures may be larger, and show what masks of their size show."""
    path = write(tmp_path / "s.lmdb")
    with Writer(tmp_path / "larger.h5", {"large": "mask"}) as out:
        for i in range(8):
            out.write({"large": encode(smooth(i, 2 * (40 + i), 2 * (44 - i))[:, :, 1] // 64, "PNG")}, key=f"s{i}")
    dataset = FastDataset(beside(path, tmp_path / "larger.h5"), fields=("image", "mask", "large", "label"))
    for steps in ([*CROPS, RandomRotation(20)], [RandomCrop(24)]):
        ((_, masks, large, _),) = batches(dataset, [*steps, ByFraction()], 8)
        assert masks.shape == large.shape
        assert 0.12 > (masks != large).float().mean()
        assert torch.equal(large, torch.cat([batch[2] for batch in batches(dataset, [*steps, ByFraction()], 3)]))
    with pytest.raises(SampleError, match="'large'"):
        batches(dataset, CROPS)


def test_what_only_pillow_decodes_by_fraction(tmp_path: Path) -> None:
    """A picture for Pillow in another size is a bad sample; one of the same size is a good one."""
    with Writer(tmp_path / "s.lmdb", {"image": "image", "depth": "image", "label": "label"}) as out:
        for i, scale in enumerate((1, 2)):
            data = encode(smooth(i, 30 * scale, 30 * scale), "TIFF")
            out.write({"image": encode(smooth(i, 30, 30), "PNG"), "depth": data, "label": i})
    with FastLoader(tmp_path / "s.lmdb", 2, transforms=[*CROPS, ByFraction()], on_error="skip") as loader:
        (batch,) = loader
        assert [0] == batch["label"].tolist()
        assert ["depth"] == [error.field for error in loader.skipped]


def test_functions_and_devices(tmp_path: Path) -> None:
    """Functions get the pictures of their field; numpy, a device and "skip" work as with one list."""
    path = write(tmp_path / "s.lmdb")
    dataset = FastDataset(path, fields=("image", "ref", "label"))
    seen: list[Any] = []

    def note(pictures: Any) -> Any:
        seen.append(pictures.shape)
        return pictures + 1

    steps: Any = {"image": [*CROPS, PerBatch(note)], "ref": [*CROPS, PerSample(lambda picture: 255 - picture)]}
    plain: Any = {"image": CROPS, "ref": CROPS}
    for batch, expected in zip(batches(dataset, steps), batches(dataset, plain), strict=True):
        assert torch.equal(expected[0] + 1, batch[0])
        assert torch.equal(255 - expected[1], batch[1])
    assert [(4, 3, 16, 16)] * 2 == seen
    graded: Any = {"image": [*CROPS, *GRADED], "ref": CROPS}
    for array, tensor, there in zip(
        batches(dataset, graded, output="numpy"),
        batches(dataset, graded),
        batches(dataset, graded, device="cpu"),
        strict=True,
    ):
        assert isinstance(array[0], np.ndarray)
        assert np.allclose(array[0], tensor[0], atol=1e-6)
        assert torch.equal(tensor[0], there[0])
    with FastLoader(dataset, 4, transforms=graded) as loader:
        assert "image: native threads (RandomResizedCrop, RandomHorizontalFlip, ColorJitter), then cpu" in repr(loader)
        assert "(Normalize)" in repr(loader)


def test_resumed_on_other_ranks(tmp_path: Path) -> None:
    """What one rank has begun, two finish with the same pixels; other lists are refused."""
    dataset = FastDataset(write(tmp_path / "s.h5", count=12), fields=("image", "control", "label"))
    steps: Any = {("image", "control"): CROPS, "image": [ColorJitter(0.5)]}
    names = ("image", "control", "label")
    whole = [dict(zip(names, batch, strict=True)) for batch in batches(dataset, steps, 3, shuffle=True)]
    with FastLoader(dataset, 3, shuffle=True, transforms=steps) as loader:
        found = [dict(zip(names, batch, strict=True)) for batch in islice(loader, 2)]
        state = loader.state_dict()
    for rank in range(2):
        with FastLoader(dataset, 1, shuffle=True, transforms=steps, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            found += [dict(zip(names, batch, strict=True)) for batch in loader]
    for name in names:
        assert equal(joined(whole, name), joined(found, name))
    with (
        FastLoader(dataset, 3, shuffle=True, transforms={"image": CROPS, "control": CROPS}) as loader,
        pytest.raises(ValueError, match="transforms"),
    ):
        loader.load_state_dict(state)


def test_what_does_not_go_by_field(tmp_path: Path) -> None:
    """Each dict that cannot be done so is refused in one line."""
    path = write(tmp_path / "s.lmdb")
    pair = FastDataset(path, fields=("image", "label"))
    two = FastDataset(path, fields=("image", "control", "label"))
    masked = FastDataset(path, fields=("image", "mask", "label"))
    unfit: list[tuple[Any, Any, type[Exception] | None, str]] = [
        (path, {"image": CROPS}, SchemaError, r"mask, boxes would stay where pictures move: name them with a picture"),
        (path, {"picture": CROPS}, SchemaError, "'picture': no such field: expected pictures, masks, boxes or points"),
        (path, {"label": CROPS}, SchemaError, "'label': .* expected pictures"),
        (path, {("boxes",): CROPS}, SchemaError, "boxes move with a picture"),
        (
            masked,
            {"image": CROPS, "mask": CROPS},
            SchemaError,
            r"mask would move apart from image: .* \('image', 'mask'\)",
        ),
        (masked, {"image": [Resize((20, 20))], "mask": [Resize((20, 20))]}, None, ""),
        (masked, {("image", "mask"): CROPS, "mask": GRADED}, ValueError, "'mask' is no picture: .* ColorJitter"),
        (masked, {"image": [Resize(20)], "mask": [Normalize([0.5], [0.2])]}, ValueError, "'mask' is no picture"),
        (two, {("image", "control"): CROPS, "image": [RandomCrop(8)]}, ValueError, "would move it away from control"),
        (two, {("image", "control"): [*CROPS, *GRADED], "image": []}, None, ""),
        (two, {("image", "control"): [*CROPS, *GRADED], "image": GRADED}, ValueError, "for image, control together"),
        (two, {"image": [*CROPS, MixUp(num_classes=8)]}, ValueError, "needs whole samples: pass one list for all"),
        (two, {"image": CROPS, ("image",): CROPS}, ValueError, "'image' is named twice"),
        (two, {3: CROPS}, TypeError, "expected the name of a field, or a tuple of names, got 3"),
        (pair, {"image": CROPS}, ValueError, "samples are a pair of image, label: pass a list"),
        (FastDataset(path, transform=dict), {"image": CROPS}, ValueError, "pass FastDataset"),
        (two, {"image": [*CROPS, KeepGeometry()], "control": [*CROPS, KeepGeometry()]}, SchemaError, "of one name"),
    ]
    for dataset, steps, kind, sentence in unfit:
        if kind is None:
            FastLoader(dataset, 4, transforms=steps).close()
            continue
        with pytest.raises(kind, match=sentence):
            FastLoader(dataset, 4, transforms=steps)
    with pytest.raises(ValueError, match="views and repeats with transforms by field"):
        FastLoader(two, 4, transforms={"image": CROPS}, repeats=2)
    lists: Any = {("image", "images", "mask", "boxes", "control", "ref"): CROPS}
    FastLoader(FastDataset(path), 4, transforms=lists).close()
    with pytest.raises(
        SchemaError, match="'mask' is one value a sample, but would move with lists of encoded pictures"
    ):
        FastLoader(FastDataset(path, fields=("images", "mask")), 4, transforms={("images", "mask"): CROPS})
    with pytest.raises(TypeError, match="a dict of fields and lists"):
        FastLoader(two, 4, transforms="image")  # type: ignore[arg-type]
    added = batches(two, {"image": CROPS, "control": [*CROPS, KeepGeometry()]})
    assert (4, 2, 3) == added[0][-1].shape


def test_samples_of_a_dataset(tmp_path: Path) -> None:
    """FastDataset takes ByField; a DataLoader's batch of it looks like FastLoader's."""
    path = write(tmp_path / "s.lmdb")
    steps = ByField(
        {("image", "control", "mask", "boxes"): CROPS, "ref": [Resize(20), CenterCrop(16)], "images": CROPS}
    )
    dataset = FastDataset(
        path,
        fields=("image", "control", "mask", "boxes", "classes", "ref"),
        transform=ByField({("image", "control", "mask", "boxes"): CROPS, "ref": [Resize(20), CenterCrop(16)]}),
    )
    batch = FieldCollate(dataset)([dataset[i] for i in range(4)])
    assert [(4, 3, 16, 16), (4, 3, 16, 16), (4, 16, 16), (4, 3, 16, 16)] == [
        tuple(batch[i].shape) for i in (0, 1, 2, 5)
    ]
    assert "image" in repr(steps)
    with pytest.raises(TypeError, match="a tuple or a dict"):
        FastDataset(path, fields="image", transform=steps)[0]
    picture = FastDataset(path, fields=("image", "boxes"), transform=ByField({("image", "boxes"): [CenterCrop(20)]}))[
        0
    ][0]
    assert isinstance(picture, Image.Image)
