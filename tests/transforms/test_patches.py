"""ResizeToTokens, SmartResize, Patchify: sizes, order and pixels as timm's and transformers', natively and in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen

from fastio import _native
from fastio.codec.image import ImageCodec
from fastio.errors import SchemaError
from fastio.loader.output import Output
from fastio.transforms import (
    ColorJitter,
    Compose,
    MixUp,
    Patchify,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    ResizeToTokens,
    SmartResize,
    patches_of,
)
from fastio.transforms.batch.recipe import Colours, Recipe
from fastio.transforms.fused import Fused
from fastio.transforms.plan import Plan
from tests.conftest import as_spans, encode
from tests.transforms.reference import execute

sizes = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=4)
resizes = st.one_of(
    st.builds(ResizeToTokens, st.integers(1, 30), st.integers(1, 9), max_ratio=st.sampled_from([None, 0.5, 1.0])),
    st.builds(SmartResize, st.integers(1, 9), st.integers(1, 400), st.integers(400, 2000)),
)
cuts = st.builds(Patchify, st.integers(1, 9), order=st.sampled_from(["raster", "qwen"]), packed=st.booleans())


def noise(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    """Random pixels."""
    return np.random.default_rng(height * 64 + width).integers(0, 256, (height, width, channels), np.uint8)


def sides(transform: Any, pairs: Any) -> NDArray[np.int64]:
    """What a transform makes of the sizes of pictures."""
    known = np.asarray(pairs)
    plan = Plan(known[:, 0], known[:, 1])
    transform.run(plan, np.zeros((len(known), 0)))
    return np.column_stack((plan.height, plan.width))


@settings(max_examples=60)
@given(sizes, resizes, st.sampled_from(["bilinear", "nearest"]))
def test_one_pass_is_pillows(pairs: list[tuple[int, int]], resize: Any, kernel: str) -> None:
    """Pictures of any sizes by one plan equal the transform applied with Pillow."""
    options = {name: getattr(resize, name) for name in type(resize).__dataclass_fields__}
    resize = type(resize)(**{**options, "interpolation": kernel})
    known = np.array(pairs)
    plan = Plan(known[:, 0], known[:, 1])
    resize.run(plan, np.zeros((len(pairs), 0)))
    for place, row in enumerate(plan.rows(len(pairs))):
        picture = Image.fromarray(noise(*pairs[place]))
        expected = np.array(resize(picture))
        assert (plan.height[place], plan.width[place], 3) == expected.shape
        assert np.array_equal(expected, execute(picture, row, expected.shape[:2], kernel=kernel, fill=(0,)))


# What timm 1.0.31's get_image_size_for_seq returns for these heights and widths, by patch and sequence length.
_SIZES = [(375, 500), (500, 375), (1, 5000), (5000, 1), (32, 32), (4032, 3024), (333, 1000), (7, 11)]
_BY_TIMM = {
    (16, 1024): [(432, 576), (576, 432), (16, 16384), (16384, 16), (512, 512), (576, 432), (288, 880), (400, 640)],
    (14, 576): [(294, 378), (378, 294), (14, 8064), (8064, 14), (336, 336), (378, 294), (196, 574), (266, 420)],
    (16, 1): [(16, 16)] * 8,
}


@pytest.mark.parametrize(("patch", "length"), _BY_TIMM)
def test_sizes_of_naflex(patch: int, length: int) -> None:
    """Sizes are those that timm gave when this was written; with max_ratio, no picture is enlarged."""
    assert _BY_TIMM[patch, length] == list(map(tuple, sides(ResizeToTokens(length, patch), _SIZES).tolist()))
    assert [[32, 32], [16, 16]] == sides(ResizeToTokens(1024, max_ratio=1.0), [(32, 32), (7, 11)]).tolist()


def test_sizes_are_timms() -> None:
    """Of a thousand pictures, all sizes are those of the timm that is installed, and so are the patches."""
    timm = pytest.importorskip("timm.data.naflex_transforms")
    pairs = np.random.default_rng(0).integers(1, 3000, (1000, 2))
    for length, patch, ratio in ((1024, 16, None), (576, 14, 1.0), (7, 32, 2.0)):
        expected = [timm.get_image_size_for_seq(pair, patch, length, max_ratio=ratio)[1] for pair in pairs.tolist()]
        assert np.array_equal(expected, sides(ResizeToTokens(length, patch, max_ratio=ratio), pairs))
    picture = torch.from_numpy(noise(50, 39)).permute(2, 0, 1)
    patches, coordinates, valid = timm.patchify_image(picture, (16, 16))
    made = Patchify(16)(picture)

    assert torch.equal(patches, made["patches"])
    assert torch.equal(coordinates, made["patch_coord"])
    assert torch.equal(valid, made["patch_valid"])


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 3000)), min_size=1, max_size=9),
    st.sampled_from([(28, 56 * 56, 28 * 28 * 1280), (32, 65536, 16777216), (28, 4 * 784, 64 * 784)]),
)
def test_sizes_are_those_of_transformers(pairs: list[tuple[int, int]], limits: tuple[int, int, int]) -> None:
    """SmartResize gives the sizes of smart_resize, and refuses what that refuses."""
    too_long = [max(pair) > 200 * min(pair) for pair in pairs]
    if any(too_long):
        with pytest.raises(SchemaError, match="more than 200 times"):
            sides(SmartResize(*limits), pairs)
        return
    assert [list(qwen.smart_resize(*pair, *limits)) for pair in pairs] == sides(SmartResize(*limits), pairs).tolist()


@pytest.mark.parametrize("size", [(100, 75), (30, 200), (56, 56), (700, 1000)])
def test_patches_are_those_of_transformers(size: tuple[int, int]) -> None:
    """Resized, cut and normalised as Qwen2VLImageProcessorPil does it: the same numbers in the same order."""
    picture = Image.fromarray(noise(*size))
    made = Patchify(14, order="qwen")(SmartResize()(picture))
    expected = qwen.Qwen2VLImageProcessorPil()(picture, return_tensors="np", do_normalize=False, do_rescale=False)

    assert np.array_equal(expected["pixel_values"], made["patches"].numpy())
    assert expected["image_grid_thw"].tolist() == [made["grid_thw"].tolist()]


def by_threads(pictures: list[NDArray[np.uint8]], transforms: list[Any], patches: Patchify, colours: Any) -> Any:
    """The lines of a batch, cut where they are decoded, and what the plain path makes of each picture."""
    stored = np.array([picture.shape for picture in pictures], np.int64)
    programs = Colours(colours, seed=3) if colours else None
    fused = Fused(transforms, seed=3, mode=None, is_raw=False, is_fast=False, colours=programs, patches=patches)
    planned = fused.plan(np.arange(len(pictures)), stored, epoch=1)
    channels = pictures[0].shape[2]
    geometry = fused.geometry(planned, channels=channels, is_planar=False)
    work = ImageCodec().rows(as_spans(list(map(encode, pictures))), verify=False, geometry=geometry)
    assert planned.grids is not None
    places = patches.places(planned.grids)
    lines = np.full((places[-1], patches.pixels, channels), 77, np.uint8)
    status = np.full(len(pictures), -1, np.int32)
    _native.fill_patches(work, lines, places, status).wait()
    assert not status.any()
    plain = [fused.apply(planned, place, picture, epoch=1) for place, picture in enumerate(pictures)]
    return lines, planned.grids, places, plain


@settings(max_examples=120)
@given(
    sizes,
    st.sampled_from([3, 4]),
    st.lists(st.sampled_from([RandomHorizontalFlip(), RandomVerticalFlip()]), max_size=2),
    st.lists(resizes, max_size=1),
    cuts,
)
def test_native_patches_are_plain_ones(
    pairs: list[tuple[int, int]], channels: int, flips: list[Any], resize: list[Any], patches: Patchify
) -> None:
    """Cut by native threads, pictures have the patches that NumPy's reshape gives of the finished one; rest is 0."""
    pictures = [noise(*pair, channels) for pair in pairs]
    lines, grids, places, plain = by_threads(pictures, [*resize, *flips], patches, [])
    for place, expected in enumerate(plain):
        own = lines[places[place] : places[place + 1]]
        assert grids[place].prod() == len(expected)
        assert np.array_equal(expected, own[: len(expected)])
        assert not own[len(expected) :].any()


@pytest.mark.parametrize("level", ["raster", "qwen"])
def test_behind_warps_and_colours(level: Any) -> None:
    """A rotation, a crop behind it, and colours are done to the picture, and then it is cut."""
    pictures = [noise(40, 30), noise(23, 51)]
    transforms = [RandomRotation(30), RandomResizedCrop(33), RandomHorizontalFlip(1.0)]
    lines, _, places, plain = by_threads(pictures, transforms, Patchify(8, order=level), [ColorJitter(0.5)])

    assert np.array_equal(np.concatenate(plain), lines)
    assert places.tolist() == [0, len(plain[0]), 2 * len(plain[0])]


@pytest.mark.parametrize("order", ["raster", "qwen"])
def test_coordinates_and_order(order: Any) -> None:
    """The pixels of each patch are those at its coordinates."""
    patches, pixels = Patchify(4, order=order), noise(24, 40)
    made = patches(Image.fromarray(pixels))
    for patch, (y, x) in zip(made["patches"].numpy(), made["patch_coord"].tolist(), strict=True):
        own = pixels[4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
        expected = own if order == "raster" else np.repeat(own.transpose(2, 0, 1)[:, None], 2, axis=1)
        assert np.array_equal(expected.reshape(-1), patch)

    assert made["grid_thw"].tolist() == [1, 6, 10]
    assert len({tuple(place) for place in made["patch_coord"].tolist()}) == 60


@pytest.mark.parametrize("order", ["raster", "qwen"])
@pytest.mark.parametrize("is_array", [False, True])
def test_patches_as_pictures_and_back(order: Any, is_array: bool) -> None:
    """What works on channels sees those of the picture, and patches come back as they were."""
    patches = Patchify(4, order=order)
    lines = patches.cut(np.full((8, 8, 3), (1, 2, 3), np.uint8)).reshape(4, -1)
    values = lines if is_array else torch.from_numpy(lines)
    pictures = patches.as_pictures(values)

    assert pictures.shape[:2] == (4, 3)
    assert [np.unique(np.asarray(pictures)[:, channel]).tolist() for channel in range(3)] == [[1], [2], [3]]
    assert np.array_equal(lines, np.asarray(patches.as_patches(pictures, lines.shape)))


def test_counts_for_samplers() -> None:
    """Counts are those of the pictures as they are cut, whatever chance decides that does not change them."""
    known = np.array([(375, 500), (60, 20), (0, 0), (375, 500)])
    transforms = [RandomHorizontalFlip(), ResizeToTokens(64), ColorJitter(0.1), Patchify(16, 64)]

    assert patches_of(known, transforms).tolist() == [63, 48, 1, 63]
    assert patches_of(known, [Patchify(16, order="qwen")]).tolist() == [24 * 32, 4 * 2, 4, 24 * 32]
    assert patches_of(np.empty((0, 2), int), transforms).dtype == np.int32
    with pytest.raises(ValueError, match="chance decides how large pictures are"):
        patches_of(known, [RandomResize(20, 60), Patchify(16)])
    with pytest.raises(ValueError, match="expected a Patchify among them"):
        patches_of(known, [ResizeToTokens(64)])
    with pytest.raises(ValueError, match=r"expected integers \(n, 2\)"):
        patches_of(known[0], transforms)
    assert patches_of(known, [Patchify(16, 64)]).tolist() == [1, 8, 1, 1]  # too many: bad samples
    assert patches_of(known, [RandomCrop(64), Patchify(16)]).tolist() == [16, 1, 1, 16]


def test_a_picture_of_too_many_patches() -> None:
    """A single one is an error that says what to do."""
    with pytest.raises(SchemaError, match=r"a picture of 375x500 pixels .* becomes 768 patches.*ResizeToTokens\(64"):
        Patchify(16, 64)(torch.zeros(3, 375, 500, dtype=torch.uint8))


def test_batches_without_pictures_and_of_unknown_ones() -> None:
    """Pictures of unknown sizes have one block each, and longest rows do not need max_patches."""
    patches = Patchify(16)
    grids = patches.grids(np.array([(0, 0), (33, 16)]))
    batch = patches.batch(np.zeros((6, 256, 3), np.uint8), grids, Output.ARRAYS)

    assert batch["patch_valid"].tolist() == [[True, False, False], [True, True, True]]
    assert batch["patch_coord"].tolist() == [[[0, 0]] * 3, [[0, 0], [1, 0], [2, 0]]]
    assert batch["patches"].shape == (2, 3, 768)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Patchify(0), "patch=0: expected 1 to 1024 pixels"),
        (lambda: Patchify(16, 0), "max_patches=0: expected 1 to 1048576 patches"),
        (lambda: Patchify(16, order="spiral"), "order='spiral': expected one of 'raster', 'qwen'"),
        (lambda: ResizeToTokens(0), "max_tokens=0: expected 1 to"),
        (lambda: ResizeToTokens(9, max_ratio=0), "max_ratio=0: expected a number above 0"),
        (lambda: ResizeToTokens(9, antialias=False), "antialias=False"),
        (lambda: SmartResize(28, 100, 50), "expected the smaller one first"),
        (lambda: SmartResize(28, 1, 100), "at least factor squared, 784"),
    ],
)
def test_what_means_nothing_is_refused(make: Any, expected: str) -> None:
    """One line names the option, what it was and what was expected."""
    with pytest.raises(ValueError, match=expected):
        make()


def test_elsewhere_it_is_refused() -> None:
    """Compose, recipes on a device and wrong values say where it belongs."""
    for refused in (lambda: Compose([Resize(8), Patchify(4)]), lambda: Recipe([Patchify(4), MixUp(2)], seed=0)):
        with pytest.raises(TypeError, match=r"Patchify\(patch=4\) makes batches of patches: pass it to FastLoader"):
            refused()
    with pytest.raises(ValueError, match="expected a PIL image or a uint8 tensor"):
        Patchify(4)(torch.zeros(3, 8, 8))


@pytest.mark.parametrize(
    ("places", "lines", "expected"),
    [
        ([0, 4, 4], 4, "places do not ascend"),
        ([1, 4, 8], 8, "places do not begin with 0"),
        ([0, 4, 8], 9, "out"),
        ([0, 4], 4, "places"),
        ([0, 4, 7], 7, "its patches are more than the row has lines"),
    ],
)
def test_places_that_do_not_fit_are_refused(places: list[int], lines: int, expected: str) -> None:
    """Native code writes nothing outside the lines of a picture."""
    fused = Fused([], seed=0, mode=None, is_raw=False, is_fast=False, patches=Patchify(4))
    planned = fused.plan(np.arange(2), np.array([[8, 8, 3]] * 2), epoch=0)
    geometry = fused.geometry(planned, channels=3, is_planar=False)
    work = ImageCodec().rows(as_spans([encode(noise(8, 8))] * 2), verify=False, geometry=geometry)
    out = np.zeros((lines, 16, 3), np.uint8)
    with pytest.raises(ValueError, match=expected):
        _native.fill_patches(work, out, np.array(places), np.zeros(2, np.int32))

    assert not out.any()
