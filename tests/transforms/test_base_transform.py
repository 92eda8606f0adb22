"""BaseTransform is a base of every transform, so that a list of several kinds of them has a type."""

from __future__ import annotations

import pytest

from fastio import transforms
from fastio.transforms import BaseTransform, BatchTransform, Transform

# The examples hold such lists in variables, and `make lint` checks the examples' types.
CLASSES = [member for name in transforms.__all__ if isinstance(member := getattr(transforms, name), type)]
KINDS = {BaseTransform, BatchTransform, Transform}
NO_TRANSFORMS = {transforms.NormalizeLayer}  # a layer of a network


@pytest.mark.parametrize("transform", [kind for kind in CLASSES if kind not in KINDS | NO_TRANSFORMS])
def test_a_transform_names_its_kind(transform: type) -> None:
    """It inherits from one of the two protocols: type checkers look for a common class, not for common methods."""
    assert 1 == len({Transform, BatchTransform} & set(transform.__mro__))
    assert BaseTransform in transform.__mro__
