"""Rotations, affine maps and perspectives of samples: what moves together, what is one matrix, what is refused."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader, SchemaError
from fastio.codec import CODECS
from fastio.store import SampleBatch, create_store
from fastio.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    Grayscale,
    KeepBoxes,
    KeepGeometry,
    Normalize,
    OneOf,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    Transform,
    move_boxes,
)
from fastio.transforms.batch.recipe import Recipe, _stage_seed
from fastio.transforms.fused import uniform
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from tests.codec.conformance import spans_of
from tests.conftest import encode
from tests.dataset.many_fields import write_fields
from tests.transforms.chains import warps
from tests.transforms.torchvision_chain import apply_torchvision, as_tv_tensors

TYPES = {"image": "image", "mask": "mask", "boxes": "xyxy", "marks": "points"}
FIELDS = tuple(field_of(name, type_) for name, type_ in TYPES.items())


def sample_of(height: int = 40, width: int = 56, *, seed: int = 0) -> dict[str, Any]:
    """Noise, whose first channel is the mask; four boxes inside, and their upper left corners."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(1, 250, (height, width, 3), np.uint8)
    x, y = rng.integers(0, width - 9, 4), rng.integers(0, height - 9, 4)
    boxes = np.stack([x, y, x + rng.integers(2, 9, 4), y + rng.integers(2, 9, 4)], 1).astype(np.float32)
    mask = np.ascontiguousarray(pixels[:, :, 0])
    return {"image": Image.fromarray(pixels), "mask": mask, "boxes": boxes, "marks": boxes[:, :2].copy()}


def moved(steps: list[Transform], numbers: Any = None, *, seed: int = 0) -> dict[str, Any]:
    """The sample after the steps."""
    compose = Compose(steps)
    drawn = np.random.default_rng(seed).random(compose.draws) if numbers is None else np.array(numbers, np.float64)
    result: dict[str, Any] = compose.for_fields(FIELDS).apply(sample_of(seed=seed), drawn)
    return result


@settings(max_examples=60, deadline=None)
@given(warp=warps, seed=st.integers(0, 99))
def test_the_nearest_numbers_are_those_of_the_picture(warp: Any, seed: int) -> None:
    """A mask that is the first channel of its picture stays that, read as the nearest pixels are; edges apart."""
    look = {"interpolation": "nearest", "fill": 255, "mask_fill": 255}
    nearest = type(warp)(**{**{name: getattr(warp, name) for name in warp.__dataclass_fields__}, **look})
    got = moved([nearest], seed=seed)

    assert np.array_equal(np.asarray(got["image"])[:, :, 0], got["mask"])


def checksum(*arrays: Any) -> int:
    return zlib.crc32(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


# Checksums of torchvision 0.29.1's masks, and of its boxes in eighths of pixels, for the same amounts.
GOLDEN = {
    "RandomRotation": (188970549, 100803408),
    "RandomAffine": (2224188480, 2086277832),
    "RandomPerspective": (3623307212, 1938398112),
}
CASES = {
    "RandomRotation": RandomRotation((-40, 70), center=(13, 19), mask_fill=255),
    "RandomAffine": RandomAffine(30, (0.1, 0.3), (0.5, 1.5), (-10, 20, -5, 5), mask_fill=255),
    "RandomPerspective": RandomPerspective(0.6, 1.0, mask_fill=255),
}


def by_fastio(name: str) -> tuple[int, int]:
    """Checksums of masks and boxes of twelve samples."""
    rule = KeepBoxes(drop=False)
    samples = [moved([rule, CASES[name]], seed=seed) for seed in range(12)]
    return checksum(*(each["mask"] for each in samples)), checksum(*(eighths(each["boxes"]) for each in samples))


def by_torchvision(name: str) -> tuple[int, int]:
    """The same by the installed torchvision."""
    masks, boxes = [], []
    for seed in range(12):
        sample = {**sample_of(seed=seed), "kinds": np.arange(4)}
        tensors = as_tv_tensors({**sample, "points": sample["marks"]}, role="xyxy")
        numbers = np.random.default_rng(seed).random(CASES[name].draws)
        done = apply_torchvision([CASES[name]], numbers, tensors, is_sanitized=False)
        masks.append(done["mask"].numpy().astype(np.uint8))
        boxes.append(eighths(done["boxes"]))
    return checksum(*masks), checksum(*boxes)


@pytest.mark.parametrize("name", list(CASES))
def test_the_installed_torchvision(name: str) -> None:
    """The checksums are still those of the installed torchvision."""
    pytest.importorskip("torchvision")

    assert GOLDEN[name] == by_torchvision(name)


def eighths(boxes: Any) -> Any:
    return np.rint(np.asarray(boxes) * 8).astype(np.int32)


@pytest.mark.parametrize("name", list(CASES))
def test_masks_and_boxes_are_torchvisions(name: str) -> None:
    """With the amounts that a sample's numbers stand for."""
    assert GOLDEN[name] == by_fastio(name)


@pytest.mark.parametrize(
    ("height", "width", "numbers"),
    [
        (1, 1, [0.0] * 8),
        (1, 9, [0.3] * 8),
        (9, 1, [0.0, 0.9] * 4),
        (2, 2, [0.9, 0.0, 0.9, 0.0, 0.9, 0.9, 0.0, 0.9]),  # both upper corners meet
        (3, 3, [0.9, 0.9, 0.0, 0.9, 0.0, 0.0, 0.9, 0.0]),  # all meet in the middle
        (4, 4, [0.4, 0.9, 0.9, 0.0, 0.9, 0.9, 0.0, 0.9]),  # three on the other diagonal
    ],
)
def test_without_a_perspective_all_stays(height: int, width: int, numbers: list[float]) -> None:
    """No matrix takes corners on a line to those of a picture: torchvision raises LinAlgError, here nothing moves."""
    sample = whole_sample(height, width)
    compose = Compose([KeepBoxes(min_size=0, min_area=0), RandomPerspective(1.0, 1.0)])
    got = compose.for_fields(FIELDS).apply(sample, np.array([0.0, *numbers]))

    for name in TYPES:
        assert np.array_equal(np.asarray(sample[name]), np.asarray(got[name]))


def whole_sample(height: int, width: int) -> dict[str, Any]:
    """Noise, a box around it, and a point at its first pixel."""
    pixels = np.random.default_rng(height * 50 + width).integers(1, 250, (height, width, 3), np.uint8)
    boxes, marks = np.array([[0, 0, width, height]], np.float32), np.zeros((1, 2), np.float32)
    return {"image": Image.fromarray(pixels), "mask": pixels[:, :, 0].copy(), "boxes": boxes, "marks": marks}


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(warps | st.builds(RandomPerspective, st.sampled_from([0.5, 1.0]), st.just(1.0)), max_size=3),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 99),
    is_extreme=st.booleans(),
)
def test_tiny_pictures(steps: list[Any], size: tuple[int, int], seed: int, is_extreme: bool) -> None:
    """Warps of pictures of few pixels neither raise nor warn; boxes and points stay numbers."""
    compose = Compose([KeepBoxes(drop=False), *steps])
    numbers = np.random.default_rng(seed).random(compose.draws)
    numbers = np.rint(numbers) * np.nextafter(1, 0) if is_extreme else numbers
    got = compose.for_fields(FIELDS).apply(whole_sample(*size), numbers)

    assert size == np.asarray(got["image"]).shape[:2] == got["mask"].shape
    assert np.isfinite(got["boxes"]).all()
    assert np.isfinite(got["marks"]).all()


def test_a_product_that_reads_its_first_pixel_infinitely_far_away() -> None:
    """Two perspectives of a picture of 2 x 2 whose product ends with 0, in place of 1: no division by it."""
    first = [0.89, 0.84, 0.25, 0.14, 0.19, 0.98, 0.46, 0.04, 0.62]
    second = [0.01, 0.54, 0.41, 0.11, 0.13, 0.35, 0.70, 0.09, 0.42]
    compose = Compose([RandomPerspective(1.0, 1.0), RandomPerspective(1.0, 1.0)])
    got = compose.for_fields(FIELDS).apply(whole_sample(2, 2), np.array([*first, *second]))

    assert np.isfinite(got["marks"]).all()


def test_neighbours_are_one_matrix() -> None:
    """Turned forth and back by one angle, nothing is lost: each pixel is read once."""
    both = [RandomRotation((30, 30), mask_fill=9), RandomRotation((-30, -30), mask_fill=9)]
    whole, got = sample_of(), moved(both)

    for name in ("image", "mask"):
        assert np.array_equal(whole[name], got[name])
    np.testing.assert_allclose(whole["boxes"], got["boxes"], atol=1e-4)
    np.testing.assert_allclose(whole["marks"], got["marks"], atol=1e-4)


@pytest.mark.parametrize("apart", [RandomHorizontalFlip(0.0), CenterCrop((40, 56)), RandomRotation((0, 0), fill=1)])
def test_others_are_not_one_matrix(apart: Transform) -> None:
    """What stands between them, or another fill, makes them two: the corners are lost."""
    steps = [RandomRotation((30, 30), mask_fill=9), apart, RandomRotation((-30, -30), mask_fill=9)]

    assert 9 in np.unique(moved(steps, np.full(Compose(steps).draws, 0.5))["mask"][:3])


def test_rules_do_not_stand_between_neighbours() -> None:
    """They have no place in the list."""
    steps = [RandomRotation((30, 30)), KeepBoxes(), RandomRotation((-30, -30))]

    assert np.array_equal(sample_of()["mask"], moved(steps)["mask"])


def test_a_perspective_and_a_rotation_are_one_matrix() -> None:
    """Also where only some samples have the perspective: the others are turned to the bit as by the rotation alone."""
    steps: list[Any] = [RandomPerspective(0.4, 0.5, "nearest"), RandomRotation(30)]
    numbers = np.random.default_rng(4).random(10)
    for number in (0.2, 0.8):
        numbers[0] = number
        one = Compose(steps)
        alone = [steps[1].apply(sample_of()["image"], numbers[9:]), one.apply(sample_of()["image"], numbers)]
        is_same = np.array_equal(*map(np.asarray, alone))
        assert (number == 0.8) == is_same


def test_geometry_follows_warps() -> None:
    """The matrix takes boxes where the picture's pixels go, behind a crop and before a flip."""
    turn = RandomRotation((90, 90))
    got = moved([CenterCrop(40), turn, RandomVerticalFlip(1.0), KeepGeometry(), KeepBoxes(clip=False, drop=False)])
    boxes = move_boxes(torch.from_numpy(sample_of()["boxes"]), torch.from_numpy(got["geometry"]))

    np.testing.assert_allclose(got["boxes"], boxes, atol=1e-4)
    np.testing.assert_allclose([[0, 1, 0], [1, 0, -8]], got["geometry"], atol=1e-5)


def test_no_matrix_for_a_perspective() -> None:
    """KeepGeometry beside one is refused before the first batch, in one line."""
    words = r"^RandomPerspective\(.*\) and KeepGeometry: no matrix \(2, 3\) says what it does: drop one$"
    with pytest.raises(SchemaError, match=words):
        moved([KeepGeometry(), RandomPerspective(p=0.5)], [0.9] * 9)  # also where it is not done


def test_a_box_that_was_cropped_away_stays_away() -> None:
    """torchvision keeps a line at the border, around which a rotation makes a box again."""
    sample = {**sample_of(), "boxes": np.array([[0, 10, 5, 30], [20, 10, 30, 30]], np.float32)}
    steps = Compose([CenterCrop((40, 30)), RandomRotation((10, 10))])
    got = steps.for_fields(FIELDS).apply(sample, np.zeros(1))

    assert 1 == len(got["boxes"])


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([RandomRotation(9), Grayscale(3)], r"^RandomRotation.* and then Grayscale.*: put Grayscale before it; "),
        ([Resize(9), Resize(20), RandomRotation(9)], r"^Resize\(.*9.* and then Resize\(.*20.* twice"),
        ([RandomRotation(9, mask_fill=256)], r"^RandomRotation.*: mask_fill=256: masks of uint8 hold numbers from 0"),
        ([KeepGeometry(), RandomPerspective()], r"^RandomPerspective.* and KeepGeometry"),
        ([ColorJitter(0.1), RandomRotation(9)], r"RandomRotation.* without mask, boxes, marks: put it before ColorJ"),
        (
            [RandomApply([RandomRotation(9), ColorJitter(0.1)])],
            r"RandomApply.* without mask, boxes, marks: give flips and rotations a list of their own, ",
        ),
        ([ColorJitter(0.1), OneOf([RandomRotation(9)])], r"OneOf.* without mask, boxes, marks: put it before ColorJ"),
    ],
)
def test_what_a_loader_refuses(tmp_path: Path, steps: list[Any], words: str) -> None:
    """One line, when it is built, that says what to write."""
    with pytest.raises(SchemaError, match=words) as caught:
        FastLoader(store_of(tmp_path), 2, transforms=steps)
    assert "\n" not in str(caught.value)


def store_of(folder: Path, count: int = 6) -> Path:
    """Samples of different sizes."""
    samples = [sample_of(30 + seed, 50 - seed, seed=seed) for seed in range(count)]
    arrays = [{**sample, "image": np.asarray(sample["image"])} for sample in samples]
    return write_fields(folder / "s.lmdb", arrays, TYPES)


def test_alpha_is_refused() -> None:
    """Warps are for pictures of one or three channels, on both paths."""
    with pytest.raises(SchemaError, match=r"^RandomRotation.*: expected pictures of 1 or 3 channels, got 4"):
        RandomRotation(9)(Image.new("RGBA", (9, 9)))


PICTURES = [
    RandomRotation(30, "bilinear", fill=(1, 2, 3)),
    RandomVerticalFlip(),
    RandomAffine(10, (0.1, 0.2), (0.8, 1.1), 5),
    RandomPerspective(0.5, 0.6),
    RandomApply([RandomRotation(20), RandomHorizontalFlip(1.0)], 0.7),
    OneOf([RandomAffine(9), RandomVerticalFlip(1.0), ColorJitter(0.3)]),
]


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
def test_pictures_before_and_behind_colours(tmp_path: Path, device: str | None, layout: Any) -> None:
    """A list in which everything moves gives what its transforms give one by one, in order, for the same numbers."""
    path = store_of(tmp_path)
    steps = [RandomResizedCrop(24), *PICTURES[:4], ColorJitter(0.3), *PICTURES]
    whole, normal = [], [Normalize((0.5,) * 3, (0.5,) * 3)]
    with FastDataset(path, fields="image") as dataset:
        for extra in ([], normal):
            loader = FastLoader(dataset, 3, transforms=[*steps, *extra], device=device, layout=layout, seed=3)
            whole.append(torch.cat(list(loader)))
        alone = FastLoader(dataset, 1, transforms=steps, device=device, layout=layout, seed=3)
        singly = torch.cat(list(alone))

    assert torch.equal(whole[0], singly)
    assert len(whole[0].unique()) > 50
    assert torch.allclose((whole[0].float() / 255 - 0.5) / 0.5, whole[1], atol=1e-6)


def test_the_same_after_a_resume(tmp_path: Path) -> None:
    """The rest of an epoch, also on another number of threads, and a state of other options is refused by name."""
    path, steps = store_of(tmp_path), [RandomRotation(30, mask_fill=255), RandomVerticalFlip(), RandomPerspective()]
    with FastLoader(path, 1, shuffle=True, seed=5, transforms=steps) as loader:
        batches = list(loader)
        rest = iter(loader)
        first = next(rest)
        state = loader.state_dict()
        expected = [first, *rest]
    assert not torch.equal(batches[0]["image"], expected[0]["image"])
    with FastLoader(path, 1, shuffle=True, seed=5, transforms=steps, threads=1) as loader:
        loader.load_state_dict(state)
        got = list(loader)
    assert 5 == len(got)
    for one, other in zip(expected[1:], got, strict=True):
        assert torch.equal(one["image"], other["image"])
        assert torch.equal(one["mask"], other["mask"])
        assert all(map(torch.equal, one["boxes"], other["boxes"]))
    others = [RandomRotation(30), *steps[1:]]
    with (
        FastLoader(path, 1, shuffle=True, seed=5, transforms=others) as loader,
        pytest.raises(ValueError, match="mask_fill=255"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize("on_error", ["skip", "zero"])
@pytest.mark.parametrize("bad", ["image", "mask"])
def test_a_damaged_sample(tmp_path: Path, on_error: Any, bad: str) -> None:
    """It is left out of all fields, or zeros in its own; the others are warped as in a store without it."""
    files: dict[str, list[bytes]] = {"image": [], "mask": []}
    for seed in range(4):
        sample = sample_of(seed=seed)
        files["image"].append(encode(np.asarray(sample["image"])))
        files["mask"].append(CODECS["mask"].encode(sample["mask"]))
    good = _packed(tmp_path / "good.lmdb", files)
    files[bad][2] = b"no picture" * 9
    damaged = _packed(tmp_path / "bad.lmdb", files)
    steps = [CenterCrop(32), RandomVerticalFlip(), RandomPerspective(p=0.9, mask_fill=255), RandomRotation(9)]
    (expected,) = FastLoader(good, 4, transforms=steps)
    with FastLoader(damaged, 4, transforms=steps, on_error=on_error) as loader:
        (got,) = loader

    kept = [0, 1, 3]
    places = [0, 1, 2] if on_error == "skip" else kept
    assert len(places) + (on_error == "zero") == len(got["image"]) == len(got["mask"])
    for name in ("image", "mask"):
        assert torch.equal(expected[name][kept], got[name][places])
    assert on_error == "skip" or not got[bad][2].any()


def _packed(path: Path, files: dict[str, list[bytes]]) -> Path:
    """A store of these files, as they are."""
    schema = Schema(tuple(field_of(name, TYPES[name]) for name in files))
    with create_store(path, schema) as writer:
        spans = {name: spans_of(values) for name, values in files.items()}
        writer.append(SampleBatch([str(place) for place in range(4)], spans, {}))
    return path


def test_views_of_pictures_are_warped(tmp_path: Path) -> None:
    """Each view draws its own angle; beside masks, views stay refused."""
    path = store_of(tmp_path)
    views = [(1, [CenterCrop(24), RandomRotation(40)]), (2, [CenterCrop(16), RandomPerspective(p=1.0)])]
    with FastDataset(path, fields="image") as dataset:
        (first, *others) = next(iter(FastLoader(dataset, 6, views=views, seed=1)))
        alone = next(iter(FastLoader(dataset, 6, transforms=views[0][1], seed=1)))
    with pytest.raises(SchemaError, match="would have to move with each view"):
        FastLoader(path, 6, views=views)

    assert torch.equal(first, alone)
    assert not torch.equal(*others)


@pytest.mark.parametrize("is_floating", [False, True])
def test_warps_of_batches(is_floating: bool) -> None:
    """In a list for a device, crops, flips and warps are one stage, whose pixels are those of each picture alone."""
    steps = [RandomCrop(20), RandomVerticalFlip(), RandomRotation(40), RandomAffine(0, (0.2, 0.2), fill=9)]
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 3, 30, 26), np.uint8))
    recipe, indices = Recipe(steps, seed=3), np.arange(5)
    given = images.float() / 255 if is_floating else images
    (got,) = recipe.run([given], recipe.draw([given], indices, 0))
    compose = Compose(steps)
    numbers = uniform(indices, compose.draws, seed=_stage_seed(3, 0), epoch=0)
    expected = [compose.apply(image, row) for image, row in zip(images, numbers, strict=True)]

    # torch may read another pixel than native code where a place lies between two
    difference = (torch.stack(expected).float() - (got * 255 if is_floating else got.float())).abs() > 0.5
    assert difference.float().mean() < (0.01 if is_floating else 1e-9)
