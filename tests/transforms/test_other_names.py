"""Names and values of torchvision that fastio does not have: one line says what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import isfunction, ismodule
from typing import Any

import pytest

import fastio
import fastio.transforms
from fastio.transforms import (
    CenterCrop,
    Compose,
    MixUp,
    Normalize,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
)
from fastio.transforms.other_names import instead_of

# The public names of torchvision 0.29: of ``transforms`` and ``transforms.v2``, and of their functionals, where a name
# with the kind of a value behind it (``resize_mask``) stands for the name without.
CLASSES = [
    "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ClampBoundingBoxes", "ClampKeyPoints",
    "ColorJitter", "Compose", "ConvertBoundingBoxFormat", "ConvertImageDtype", "CutMix", "ElasticTransform",
    "FiveCrop", "GaussianBlur", "GaussianNoise", "Grayscale", "Identity", "InterpolationMode", "JPEG", "Lambda",
    "LinearTransformation", "MixUp", "Normalize", "PILToTensor", "Pad", "RGB", "RandAugment",
    "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChannelPermutation",
    "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip",
    "RandomInvert", "RandomIoUCrop", "RandomOrder", "RandomPerspective", "RandomPhotometricDistort",
    "RandomPosterize", "RandomResize", "RandomResizedCrop", "RandomRotation", "RandomShortestSize",
    "RandomSolarize", "RandomVerticalFlip", "RandomZoomOut", "Resize", "SanitizeBoundingBoxes", "SanitizeKeyPoints",
    "ScaleJitter", "SetClampingMode", "TenCrop", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor",
    "Transform", "TrivialAugmentWide", "UniformTemporalSubsample", "check_type", "get_bounding_boxes",
    "get_keypoints", "has_all", "has_any", "query_chw", "query_size",
]  # fmt: skip
FUNCTIONS = [
    "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation", "adjust_sharpness",
    "affine", "autocontrast", "center_crop", "clamp_bounding_boxes", "clamp_keypoints",
    "convert_bounding_box_format", "convert_image_dtype", "crop", "elastic", "elastic_transform", "equalize",
    "erase", "five_crop", "gaussian_blur", "gaussian_noise", "get_dimensions", "get_image_num_channels",
    "get_image_size", "get_num_channels", "get_num_frames", "get_size", "grayscale_to_rgb", "hflip",
    "horizontal_flip", "invert", "is_pure_tensor", "jpeg", "normalize", "pad", "permute_channels", "perspective",
    "pil_to_tensor", "posterize", "register_kernel", "resize", "resized_crop", "rgb_to_grayscale", "rotate",
    "sanitize_bounding_boxes", "sanitize_keypoints", "solarize", "ten_crop", "to_dtype", "to_grayscale", "to_image",
    "to_pil_image", "to_tensor", "uniform_temporal_subsample", "vertical_flip", "vflip",
]  # fmt: skip
MODULES = {"crop", "resize"}  # of fastio.transforms, which an import finds


def test_an_import_says_what_to_do_instead() -> None:
    """An import statement would drop the text of an AttributeError."""
    with pytest.raises(ImportError, match=r"fastio.transforms has no ToTensor: batches are tensors already: "):
        from fastio.transforms import ToTensor  # noqa: F401


def test_a_look_for_a_name_finds_none() -> None:
    """As hasattr and getattr with a default do in scripts that choose transforms by name."""
    assert not hasattr(fastio.transforms, "ToTensor")
    assert getattr(fastio.transforms, "ToImage", None) is None
    with pytest.raises(AttributeError, match="batches are tensors already"):
        _ = fastio.transforms.ToTensor


@pytest.mark.parametrize("name", [*CLASSES, *sorted(set(FUNCTIONS) - MODULES), "functional", "v2"])
def test_every_name_of_torchvision_is_there_or_explained(name: str) -> None:
    """fastio has the class, or an import says in one line what to write, of names that exist."""
    if name in fastio.transforms.__all__:
        assert instead_of(name) is None
        assert callable(getattr(fastio.transforms, name))
        return
    with pytest.raises(ImportError, match=f"^fastio.transforms has no {name}: ") as caught:
        exec(f"from fastio.transforms import {name}")
    message = str(caught.value)
    assert "\n" not in message
    for owner, called in re.findall(r"(v2\.)?\b([A-Z]\w+)\(", message):
        known = CLASSES if owner else [*fastio.transforms.__all__, *fastio.__all__]
        assert called in known, message


def test_kinds_of_values_have_no_message_of_their_own() -> None:
    """v2.functional has each function for pictures, videos, masks, boxes and points, too."""
    assert instead_of("hflip") == instead_of("hflip_image") == instead_of("hflip_bounding_boxes")
    assert instead_of("get_size") == instead_of("get_size_keypoints")
    assert instead_of("no_such_name_image") is None


@pytest.mark.parametrize(("name", "instead"), [("RandomChoice", "OneOf"), ("Solarize", "RandomSolarize")])
def test_names_that_stand_for_others(name: str, instead: str) -> None:
    """The message names the transform that does the same."""
    with pytest.raises(AttributeError, match=rf"has no {name}: {instead}\("):
        getattr(fastio.transforms, name)


def test_the_lists_are_those_of_torchvision() -> None:
    """Where it is installed: every public class and function of its transforms is in the lists, or explained."""
    v1, v2 = pytest.importorskip("torchvision.transforms"), pytest.importorskip("torchvision.transforms.v2")
    faces = [v1, v2]
    functions = [v1.functional, v2.functional]
    names = {name for face in faces for name, value in vars(face).items() if name[0] != "_" and not ismodule(value)}
    assert set() == names - set(CLASSES) - {"functional"}
    called = {name for face in functions for name, value in vars(face).items() if name[0] != "_" and isfunction(value)}
    assert set() == {name for name in called if instead_of(name) is None}
    assert set() == set(FUNCTIONS) - called


@pytest.mark.parametrize(
    ("make", "error", "expected"),
    [
        (lambda: RandomCrop(8, fill={"mask": 255}), TypeError, "^fill={'mask': 255}: .* masks write mask_fill"),  # type: ignore[arg-type]
        (lambda: RandomCrop(8, fill="255"), ValueError, "^fill='255': expected a number from 0 to 255, or one per"),  # type: ignore[arg-type]
        (lambda: Pad(10, mask_fill=2.5), ValueError, "^mask_fill=2.5: expected a whole number, such as 255"),  # type: ignore[arg-type]
        (lambda: CenterCrop(8, mask_fill="x"), ValueError, "^mask_fill='x': expected a whole number"),  # type: ignore[arg-type]
        (lambda: RandomCrop(None), ValueError, "^size=None: expected a number of at least 1, or"),  # type: ignore[arg-type]
        (lambda: Pad(None), ValueError, "^padding=None: expected one, two or four numbers"),  # type: ignore[arg-type]
        (lambda: RandomResizedCrop(8, scale=0.5), ValueError, "^scale=0.5: expected two numbers"),  # type: ignore[arg-type]
        (lambda: RandomHorizontalFlip("0.5"), ValueError, "^p='0.5': expected a probability"),  # type: ignore[arg-type]
        (lambda: MixUp("0.2"), ValueError, "^alpha='0.2': expected a finite number above 0"),  # type: ignore[arg-type]
        (lambda: Normalize(0.5, 0.5), TypeError, r"^mean=0.5: expected one number per channel, such as \(0.5,\)"),  # type: ignore[arg-type]
        (lambda: Compose(RandomCrop(8)), TypeError, "expected a list of transforms$"),  # type: ignore[arg-type]
        (
            lambda: Compose([RandomCrop(8), print]),  # type: ignore[list-item]
            TypeError,
            r"print>: Compose takes transforms of fastio: write PerSample\(print\) for a function of one picture, ",
        ),
    ],
)
def test_values_of_another_kind(make: Callable[[], Any], error: Any, expected: str) -> None:
    """A value that users pass, and that is none, is one line."""
    with pytest.raises(error, match=expected) as caught:
        make()

    assert "\n" not in str(caught.value)
