"""Names and values of torchvision that fastio does not have: one line says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    "name",
    [
        "ElasticTransform",
        "GaussianNoise",
        "Lambda",
        "RandomOrder",
    ],
)
def test_transforms_that_only_torchvision_has(name: str) -> None:
    """The message names both roads: torchvision's own on the plain path, and a function in native threads."""
    road = rf"no {name}: FastDataset\(path, transform=...\) takes torchvision's; .* natively as Compiled\(function\)"
    with pytest.raises(AttributeError, match=road):
        getattr(fastio.transforms, name)
    with pytest.raises(ImportError, match=road):
        exec(f"from fastio.transforms import {name}")


@pytest.mark.parametrize(("name", "instead"), [("RandomChoice", "OneOf"), ("Solarize", "RandomSolarize")])
def test_names_that_stand_for_others(name: str, instead: str) -> None:
    """The message names the transform that does the same."""
    with pytest.raises(AttributeError, match=rf"has no {name}: {instead}\("):
        getattr(fastio.transforms, name)


def test_every_name_of_torchvision_is_explained() -> None:
    """Its classes, where it is installed: fastio has the name, or says what to do."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    own = ("AutoAugmentPolicy", "InterpolationMode")
    for name in [name for name in vars(v2) if name[0].isupper() and name not in own]:
        if name not in fastio.transforms.__all__:
            with pytest.raises(AttributeError, match=f"fastio.transforms has no {name}: "):
                getattr(fastio.transforms, name)


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
        (lambda: MixUp("0.2"), ValueError, "^alpha='0.2': expected a number above 0"),  # type: ignore[arg-type]
        (lambda: Normalize(0.5, 0.5), TypeError, r"^mean=0.5: expected one number per channel, such as \(0.5,\)"),  # type: ignore[arg-type]
        (lambda: Compose(RandomCrop(8)), TypeError, "expected a list of transforms$"),  # type: ignore[arg-type]
        (
            lambda: Compose([RandomCrop(8), print]),  # type: ignore[list-item]
            TypeError,
            "print>: Compose takes only transforms of fastio: .* a function of your own, .* or torchvision's Compose$",
        ),
    ],
)
def test_values_of_another_kind(make: Callable[[], Any], error: Any, expected: str) -> None:
    """A value that users pass, and that is none, is one line."""
    with pytest.raises(error, match=expected) as caught:
        make()

    assert "\n" not in str(caught.value)
