"""Resizes take the order of passes of the installed Pillow, whichever that is."""

from __future__ import annotations

import numpy as np
import PIL
import pytest
from PIL import Image

from fastio.codec import codec
from fastio.codec.codec import Geometry
from fastio.codec.pass_order import pillow_takes_cheaper_pass_first
from fastio.codec.raw import RawCodec
from tests.conftest import as_spans, pictures

HEIGHT, WIDTH = 97, 41
NEW_HEIGHT, NEW_WIDTH = 30, 60


@pytest.mark.skipif(".post" in PIL.__version__, reason="Pillow-SIMD counts versions of its own")
def test_the_order_is_that_of_the_version() -> None:
    """Pillow changed it in 13."""
    assert (int(PIL.__version__.split(".")[0]) >= 13) == pillow_takes_cheaper_pass_first()


@pytest.mark.parametrize("cheaper_first", [False, True])
def test_codecs_follow_it(cheaper_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tall picture that becomes wide has the pixels of the two passes in that order."""
    monkeypatch.setattr(codec, "pillow_takes_cheaper_pass_first", lambda: cheaper_first)
    (pixels,) = pictures(1, (HEIGHT, WIDTH, 3))
    middle = (WIDTH, NEW_HEIGHT) if cheaper_first else (NEW_WIDTH, HEIGHT)
    bilinear = Image.Resampling.BILINEAR
    expected = Image.fromarray(pixels).resize(middle, bilinear).resize((NEW_WIDTH, NEW_HEIGHT), bilinear)
    plan = np.array([[0, 0, WIDTH, HEIGHT, NEW_WIDTH, NEW_HEIGHT, 0, 0, NEW_WIDTH, NEW_HEIGHT, 0, 0, 0]], np.int32)
    out, status = np.empty((1, NEW_HEIGHT, NEW_WIDTH, 3), np.uint8), np.zeros(1, np.int32)
    geometry = Geometry(plan, fill=b"\0\0\0", stored=(HEIGHT, WIDTH))
    RawCodec().decode(as_spans([pixels.tobytes()]), out, status, geometry=geometry).wait()

    assert np.array_equal(np.asarray(expected), out[0])
