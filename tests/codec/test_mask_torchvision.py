"""Masks through a plan equal the installed torchvision's functional transforms v2 on ``tv_tensors.Mask``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import _native
from fastio.codec import CODECS
from fastio.codec.codec import Geometry
from tests.codec.conformance import spans_of
from tests.codec.png_writer import write_png
from tests.codec.test_mask import by_pillow, plans
from tests.codec.test_png import recipes

tv_tensors = pytest.importorskip("torchvision.tv_tensors")
functional = pytest.importorskip("torchvision.transforms.v2.functional")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_masks_equal_torchvision(data: st.DataObject) -> None:
    """Crop, resize, crop, pad with 0 and flip, to the bit, for PNGs of every kind without colours."""
    file = write_png(data.draw(recipes().filter(lambda recipe: recipe.color in (0, 3))))
    numbers = by_pillow(file)
    plan, size = data.draw(plans((numbers.shape[0], numbers.shape[1])))
    x, y, w, h, virtual_w, virtual_h, left, top, window_w, window_h, place_x, place_y, flip = plan
    out, status = np.zeros((1, *size), numbers.dtype), np.full(1, -1, np.int32)

    geometry = Geometry(np.array([plan], np.int32))
    CODECS["mask"].decode(spans_of([file]), out, status, geometry=geometry).wait()

    mask = tv_tensors.Mask(torch.from_numpy(numbers.astype(np.int32 if numbers.dtype == np.uint16 else np.uint8)))
    resized = functional.resize(functional.crop(mask, y, x, h, w), [virtual_h, virtual_w])
    window = functional.crop(resized, top, left, window_h, window_w)
    edges = [place_x, place_y, size[1] - place_x - window_w, size[0] - place_y - window_h]
    is_empty = window_w == 0 or window_h == 0
    expected = torch.zeros(size) if is_empty else functional.pad(window, edges)
    expected = functional.horizontal_flip(expected) if flip else expected
    assert status[0] == _native.OK
    np.testing.assert_array_equal(expected.numpy(), out[0])
