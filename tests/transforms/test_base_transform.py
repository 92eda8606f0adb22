"""BaseTransform is a base of every transform, so that a list of several kinds of them has a type."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from fastio import transforms
from fastio.transforms import BaseTransform, BatchTransform, Transform

# The examples hold such lists in variables, and `make lint` checks the examples' types.
CLASSES = [member for name in transforms.__all__ if isinstance(member := getattr(transforms, name), type)]
KINDS = {BaseTransform, BatchTransform, Transform}
# A layer of a network; lists of transforms; a function of a whole batch.
NO_TRANSFORMS = {transforms.NormalizeLayer, transforms.Views, transforms.ByField, transforms.PerBatch}
# Neither of one sample nor of a batch's pictures: they make something else of these, or say what is to be made.
OF_SAMPLES = {transforms.Mosaic, transforms.Patchify, transforms.Pick, transforms.ByFraction}
BY_LIST = {transforms.RandomApply, transforms.OneOf}  # what their transforms are, they are


@pytest.mark.parametrize("transform", [kind for kind in CLASSES if kind not in KINDS | NO_TRANSFORMS])
def test_a_transform_names_its_kind(transform: type) -> None:
    """It inherits from one of the two protocols: type checkers look for a common class, not for common methods."""
    assert (transform not in OF_SAMPLES | BY_LIST) == len({Transform, BatchTransform} & set(transform.__mro__))
    assert BaseTransform in transform.__mro__


@pytest.mark.parametrize("kind", sorted(BY_LIST, key=str), ids=lambda kind: kind.__name__)
def test_choices_are_what_their_transforms_are(kind: Any) -> None:
    """Of flips and warps alone they move samples, with colours they are of batches; to users, both are one class."""
    moves = kind([transforms.RandomRotation(9), transforms.RandomHorizontalFlip()])
    colours = kind([transforms.RandomRotation(9), transforms.ColorJitter(0.1)])

    assert [True, False] == [isinstance(each, Transform) for each in (moves, colours)]
    assert [False, True] == [isinstance(each, BatchTransform) for each in (moves, colours)]
    for each in (moves, colours, kind([moves]), kind([transforms.RandomVerticalFlip(), colours])):
        assert isinstance(each, kind)
        assert pickle.loads(pickle.dumps(each)) == each == copy.deepcopy(each)
        assert repr(each).startswith(f"{kind.__name__}(transforms=(")
    with pytest.raises(TypeError, match="it takes ColorJitter, GaussianBlur, RandomRotation"):
        kind([transforms.CenterCrop(9)])


@pytest.mark.parametrize("name", ["ToTensor", "PILToTensor", "ToImage", "ConvertImageDtype"])
def test_torchvisions_names_that_are_not_needed(name: str) -> None:
    """Importing one says that it is left out, and what to write for floats; another name is an ordinary error."""
    with pytest.raises(ImportError, match=f"has no {name}: batches are tensors already: leave it out"):
        exec(f"from fastio.transforms import {name}")
    assert not hasattr(transforms, "ToTensors")
