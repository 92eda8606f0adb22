"""Steps of torchvision as fastio's: attributes that v2 keeps in another form, and steps for boxes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fastio.doctor.recipe import recipe_of
from fastio.transforms import KeepBoxes, KeepPoints, RandomCrop


def step_of(name: str, **attributes: Any) -> Any:
    """An object that looks like a step of torchvision v2."""
    kind = type(name, (SimpleNamespace,), {"__module__": "torchvision.transforms.v2._geometry"})
    return kind(**attributes)


def test_padding_as_v2_keeps_it() -> None:
    """RandomCrop of v2 keeps left, right, top, bottom, whatever was written."""
    step = step_of(
        "RandomCrop", size=(8, 8), padding=[1, 3, 2, 4], pad_if_needed=False, fill=0, padding_mode="constant"
    )

    assert ((RandomCrop(8, padding=(1, 2, 3, 4)),), ()) == recipe_of([step])


def test_steps_for_boxes_and_points() -> None:
    """Rules take their place; clamping boxes is what fastio does anyway."""
    steps = [
        step_of("ClampBoundingBoxes"),
        step_of("SanitizeBoundingBoxes", min_size=2, min_area=9),
        step_of("ClampKeyPoints"),
        step_of("SanitizeKeyPoints"),
    ]

    assert ((KeepBoxes(2, 9), KeepPoints("clip"), KeepPoints("drop")), ()) == recipe_of(steps)


def test_torchvisions_own() -> None:
    """The installed torchvision keeps these attributes."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    steps = [v2.RandomCrop(8, padding=(1, 2, 3, 4)), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(2, 9)]

    assert ((RandomCrop(8, padding=(1, 2, 3, 4)), KeepBoxes(2, 9)), ()) == recipe_of(steps)
