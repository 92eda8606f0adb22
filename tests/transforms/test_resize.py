"""Letterbox: the size that fits, and where the picture stands in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio.transforms import Compose, Letterbox, Transform
from fastio.transforms.plan import Plan


def plan_of(transform: Transform, height: int, width: int) -> list[int]:
    """Virtual size and place."""
    plan = Plan(np.array([height]), np.array([width]))
    Compose([transform]).run(plan, np.zeros((1, 0)))
    assert (64, 64) == (int(plan.height[0]), int(plan.width[0]))
    row = plan.rows(1)[0].tolist()
    return [*row[4:6], *row[10:12]]


@pytest.mark.parametrize(
    ("height", "width", "options", "expected"),
    [
        (32, 48, {}, [64, 43, 0, 10]),  # 42.67 rows are rounded; the odd line of edge is below
        (48, 32, {}, [43, 64, 10, 0]),
        (48, 32, {"position": "top-left"}, [43, 64, 0, 0]),
        (128, 128, {}, [64, 64, 0, 0]),
        (32, 48, {"upscale": False}, [48, 32, 8, 16]),
        (640, 480, {"upscale": False}, [48, 64, 8, 0]),
        (1, 1000, {}, [64, 1, 0, 31]),
        (600, 1, {}, [1, 64, 31, 0]),
    ],
)
def test_sizes_and_places(height: int, width: int, options: Any, expected: list[int]) -> None:
    """The long side gets its length, the short one at least a pixel; without upscale, nothing grows."""
    assert expected == plan_of(Letterbox(64, **options), height, width)


def test_edges() -> None:
    """A picture of one colour stands between edges of another."""
    got = np.asarray(Letterbox((4, 8), fill=(1, 2, 3))(Image.new("RGB", (10, 10), (9, 9, 9))))

    assert [[1, 2, 3]] * 2 + [[9, 9, 9]] * 4 + [[1, 2, 3]] * 2 == got[0].tolist() == got[3].tolist()
