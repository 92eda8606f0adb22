"""The plan's algebra: a chain of transforms in one pass is the chain, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import SchemaError
from fastio.transforms import (
    CenterCrop,
    Compose,
    Grayscale,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Transform,
)
from fastio.transforms.fused import Fused
from fastio.transforms.plan import BLANK, COLUMNS, Plan, canvas_step
from fastio.transforms.program import paint
from tests.transforms.chains import FILL, chains, is_fusible, scaled, sizes, tolerance
from tests.transforms.reference import execute


def noise(height: int, width: int, seed: int) -> Image.Image:
    """A picture of random pixels."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@settings(max_examples=400, deadline=None)
@given(
    chain=st.one_of(chains, scaled).filter(is_fusible),
    shapes=st.lists(st.tuples(st.integers(4, 48), st.integers(4, 48)), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 32),
    is_uniform=st.booleans(),
)
def test_one_pass_is_step_by_step(
    chain: list[Transform], shapes: list[tuple[int, int]], seed: int, is_uniform: bool
) -> None:
    """Pictures of any sizes by one plan equal each transform applied with Pillow, for the same numbers."""
    if is_uniform:
        shapes = shapes[:1] * len(shapes)
    images = [noise(height, width, seed + place) for place, (height, width) in enumerate(shapes)]
    transform = Compose(chain)
    numbers = np.random.default_rng(seed).random((len(shapes), transform.draws))
    known = np.array(shapes[:1] if is_uniform else shapes)
    plan = Plan(known[:, 0], known[:, 1])
    transform.run(plan, numbers)
    heights, widths = (np.broadcast_to(each, len(shapes)) for each in (plan.height, plan.width))

    for place, row in enumerate(plan.rows(len(shapes))):
        expected = np.array(transform.apply(images[place], numbers[place]))
        size = (int(heights[place]), int(widths[place]))
        got = execute(images[place], row, size, kernel=plan.kernel or "nearest", fill=plan.fill or (0,))
        assert expected.shape == got.shape
        assert np.abs(expected.astype(int) - got).max() <= tolerance(chain)


@settings(max_examples=100, deadline=None)
@given(
    size=sizes, pad=st.integers(0, 12), crop=st.tuples(st.integers(1, 9), st.integers(1, 9)), seed=st.integers(0, 99)
)
def test_a_window_of_a_window(size: tuple[int, int], pad: int, crop: tuple[int, int], seed: int) -> None:
    """Crops of crops of edges, mirrored between them, in both orders."""
    chain = [
        Pad(pad, FILL),
        RandomHorizontalFlip(),
        RandomCrop(crop, padding=(4, 5), fill=FILL),
        RandomHorizontalFlip(),
        RandomCrop(1, padding=(0, 1), fill=FILL),
    ]
    transform = Compose(chain)
    image = noise(*size, seed)
    numbers = np.random.default_rng(seed).random(transform.draws)
    plan = Plan(np.array(size[:1]), np.array(size[1:]))
    transform.run(plan, numbers[None])

    expected = np.array(transform.apply(image, numbers))
    assert np.array_equal(expected, execute(image, plan.rows(1)[0], (1, 1), kernel="nearest", fill=FILL))


def test_names_of_earlier_releases() -> None:
    """States know transforms by these words: a new option is left out where it is as before."""
    assert "CenterCrop(size=(8, 8))" == str(CenterCrop(8))
    assert "Pad(padding=(2, 2, 2, 2), fill=(0,), padding_mode='constant')" == str(Pad(2))
    assert "CenterCrop(size=(8, 8), fill=7, mask_fill=255)" == str(CenterCrop(8, fill=7, mask_fill=255))


def test_a_row_of_fill() -> None:
    """Where a crop sees edges only, the window is empty."""
    plan = Plan(np.array([8]), np.array([8]))
    Compose([Pad((20, 0, 0, 0), 7), RandomCrop(8)]).run(plan, np.zeros((1, 2)))
    row = dict(zip(COLUMNS, plan.rows(1)[0].tolist(), strict=True))

    assert (0, 0) == (row["window_w"], row["window_h"])
    assert plan.fill == (7,)


def test_the_columns() -> None:
    """Resize and CenterCrop: the whole picture resampled, of which the middle is computed."""
    plan = Plan(np.array([300]), np.array([500]))
    Compose([Resize(256), CenterCrop(224)]).run(plan, np.zeros((1, 0)))

    assert [0, 0, 500, 300, 426, 256, 101, 16, 224, 224, 0, 0, 0] == plan.rows(1)[0].tolist()
    assert len(BLANK) == len(COLUMNS)


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ([Resize(256), RandomResizedCrop(224)], r"Resize.* and then RandomResizedCrop.* twice"),
        ([Pad(4, fill=1), RandomCrop(8, padding=2)], r"Pad.* and then RandomCrop.* two colours"),
        (
            [Pad(4, mask_fill=255), RandomCrop(8, padding=2)],
            r"Pad.* and then RandomCrop.* masks would have two numbers",
        ),
        ([RandomHorizontalFlip(), Resize(8, "nearest")], r"RandomHorizontalFlip.* and then Resize.*'nearest'"),
    ],
)
def test_what_does_not_fit_together_is_named(chain: list[Transform], words: str) -> None:
    """One error that names both transforms and the way out; the same chain works step by step."""
    plan = Plan(np.array([64]), np.array([64]))
    transform = Compose(chain)
    with pytest.raises(SchemaError, match=words) as caught:
        transform.run(plan, np.full((1, transform.draws), 0.2))

    assert "FastDataset(transform=Compose" in str(caught.value)
    assert isinstance(transform(noise(64, 64, 0)), Image.Image)


def test_masks_cannot_be_resampled_after_a_flip() -> None:
    """The nearest pixels of torchvision's masks are not symmetric: a flip comes last, or is an error."""
    kept = {"seed": 0, "mode": "RGB", "is_raw": False, "is_fast": False}
    Fused([Resize(32), RandomHorizontalFlip()], **kept).check_masks()
    fused = Fused([RandomHorizontalFlip(), Resize(32)], **kept)  # which pictures may do

    with pytest.raises(SchemaError, match=r"RandomHorizontalFlip.* and then Resize.* of a mask.*put the flip last"):
        fused.check_masks()


def test_fill_after_grayscale() -> None:
    """Edges become grey with the picture; afterwards only a shade of grey is an edge."""
    plan = Plan(np.array([8]), np.array([8]))
    Compose([Pad(1, (255, 0, 0)), Grayscale(3)]).run(plan, np.zeros((1, 0)))
    assert plan.fill == (Image.new("RGB", (1, 1), (255, 0, 0)).convert("L").getpixel((0, 0)),)

    fresh: Any = Plan(np.array([8]), np.array([8]))
    with pytest.raises(SchemaError, match="shade of grey"):
        Compose([Grayscale(3), Pad(1, (255, 0, 0))]).run(fresh, np.zeros((1, 0)))


def test_pictures_in_memory_keep_their_size() -> None:
    """A program that leads to other canvases is for pictures on their way into rows."""
    pixels, program = np.zeros((1, 9, 8, 3), np.uint8), canvas_step(1, np.array([9]), np.array([8]), None, (0,))
    with pytest.raises(ValueError, match=r"^colours 0: pictures that lie in memory keep their size"):
        paint(pixels, program)
