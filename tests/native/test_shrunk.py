"""JPEGs shrunk by their decoder before they are resampled (quality="fast"), compared with Pillow's draft mode."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import _native
from tests.native.test_transformed import FILTERS, MODES, Array, Batch, Plan, jpeg_files, pixels, png, save_jpeg, whole

NEAREST = FILTERS.index(Image.Resampling.NEAREST)


def shrink_of(plan: Plan) -> int:
    """The largest of 8, 4, 2 that leaves both sides twice what they become; otherwise 1."""
    ratio = min(old / new for old, new in zip(plan.box[2:], plan.virtual, strict=True))
    return next((shrink for shrink in (8, 4, 2) if ratio >= 2 * shrink), 1)


def draft(file: bytes, shrink: int, channels: int) -> Image.Image:
    """The whole picture as libjpeg-turbo shrinks it."""
    picture = Image.open(io.BytesIO(file))
    width, height = picture.size
    picture.draft(None, (width // shrink, height // shrink))
    assert (-(-width // shrink), -(-height // shrink)) == picture.size
    return picture.convert(MODES[channels])


def resized(
    picture: Image.Image, box: tuple[float, float, float, float], size: tuple[int, int], kernel: int
) -> Image.Image:
    """Pillow's resize of a box whose ends lie within pixels, of which no other is read; one pass after the other."""
    x, y, right, bottom = box
    low = (int(x), int(y))
    picture = picture.crop((*low, -int(-right // 1), -int(-bottom // 1)))
    x, y, right, bottom = x - low[0], y - low[1], right - low[0], bottom - low[1]
    width, height = right - x, bottom - y
    if height > size[1] and height - size[1] > 2 * (width - size[0]):
        upright = picture.resize((picture.width, size[1]), FILTERS[kernel], (0, y, picture.width, bottom))
        return upright.resize(size, FILTERS[kernel], (x, 0, right, size[1]))
    flat = picture.resize((size[0], picture.height), FILTERS[kernel], (x, 0, right, picture.height))
    return flat.resize(size, FILTERS[kernel], (0, y, size[0], bottom))


def expected(file: bytes, plan: Plan, batch: Batch) -> Array:
    """The same by Pillow: shrunk, cropped between pixels, resampled, mirrored."""
    shrink = shrink_of(plan)
    x, y, width, height = plan.box
    ends = (x / shrink, y / shrink, (x + width) / shrink, (y + height) / shrink)
    result = resized(draft(file, shrink, batch.channels), ends, plan.virtual, batch.filter)
    if plan.flip:
        result = result.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(result).reshape(plan.row[1], plan.row[0], -1)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_shrunk_equals_pillows_draft(data: st.DataObject) -> None:
    """A box of a JPEG, shrunk at first: the pixels of the shrunk whole, resampled from the very same places."""
    width, height = data.draw(st.integers(40, 250)), data.draw(st.integers(40, 250))
    box_w, box_h = data.draw(st.integers(20, width)), data.draw(st.integers(20, height))
    box = (data.draw(st.integers(0, width - box_w)), data.draw(st.integers(0, height - box_h)), box_w, box_h)
    plan = whole(box, (data.draw(st.integers(1, box_w // 4)), data.draw(st.integers(1, box_h // 4))))
    plan = replace(plan, flip=data.draw(st.integers(0, 1)))
    for kind, file in jpeg_files(width, height, 1).items():
        batch = Batch([file], [plan], data.draw(st.sampled_from([1, 3])), data.draw(st.integers(0, 4)), fast=True)
        found = batch.decode()[0]
        assert batch.status.tolist() == [_native.OK], kind
        difference = expected(file, plan, batch).astype(int) - found
        # A mirrored picture's weights are rounded anew.
        assert np.abs(difference).max() <= plan.flip, (kind, shrink_of(plan))


@pytest.mark.parametrize(
    ("size", "shrink"), [((61, 30), 1), ((60, 41), 1), ((60, 40), 2), ((31, 20), 2), ((30, 20), 4), ((15, 10), 8)]
)
def test_how_much_is_shrunk(size: tuple[int, int], shrink: int) -> None:
    """So much that twice the size is left on both sides; below four times smaller nothing changes."""
    file = save_jpeg(Image.fromarray(pixels(160, 240, 3)), subsampling=2)
    plan = whole((0, 0, 240, 160), size)
    exact, fast = Batch([file], [plan]).decode(), Batch([file], [plan], fast=True)

    assert shrink_of(plan) == shrink
    np.testing.assert_array_equal(expected(file, plan, fast), fast.decode()[0])
    assert (shrink == 1) == np.array_equal(exact, fast.out)


def test_only_averages_of_jpegs_are_shrunk() -> None:
    """PNGs stay exact, and so do JPEGs of which pixels are picked instead of averaged."""
    array = pixels(160, 240, 3)
    plan = whole((3, 5, 201, 103), (10, 5))
    for file, kernel in ((png(array), 0), (save_jpeg(Image.fromarray(array)), NEAREST)):
        exact = Batch([file], [plan], filter=kernel).decode()
        np.testing.assert_array_equal(exact, Batch([file], [plan], filter=kernel, fast=True).decode())


def test_a_ramp_stays_where_it_is() -> None:
    """Between whole pixels too the box is resampled from its own place: a ramp's values shift by less than a level."""
    ramp = np.broadcast_to(np.linspace(20, 230, 400).astype(np.uint8)[None, :, None], (400, 400, 3))
    file = save_jpeg(Image.fromarray(np.ascontiguousarray(ramp)), subsampling=0)
    for start in range(17):
        plan = whole((start, 2 * start, 367, 351), (9, 11))
        exact = Batch([file], [plan]).decode().astype(float)
        fast = Batch([file], [plan], fast=True).decode()
        assert abs((exact - fast).mean()) < 0.5
        assert np.abs(exact - fast).max() <= 2


def test_damage_is_seen() -> None:
    """A file cut off within the rows needed is an error here, too."""
    file = save_jpeg(Image.fromarray(pixels(160, 240, 3)))
    batch = Batch([file[: len(file) // 2], file], [whole((0, 0, 240, 160), (30, 20))] * 2, fast=True)
    batch.decode()

    assert [_native.TRUNCATED, _native.OK] == batch.status.tolist()
    outside = Batch([file], [whole((41, 0, 200, 160), (20, 20))], fast=True)
    outside.decode()
    assert [_native.BAD_SHAPE] == outside.status.tolist()
