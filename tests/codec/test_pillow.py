"""The plain path: pictures that only Pillow reads."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from fastio import _native
from fastio.codec.pillow import decode_with_pillow
from tests.codec.test_png import decode

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def written(kind: str) -> bytes:
    """The pixels as a file of this kind."""
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, kind)
    return buffer.getvalue()


def test_other_kinds() -> None:
    """A kind without a native decoder is UNSUPPORTED, and Pillow reads it."""
    file = written("TIFF")
    assert decode(file, (6, 8), 3)[0] == _native.UNSUPPORTED
    assert decode_with_pillow(file, "RGB").pixels.shape == (6, 8, 3)
    assert decode_with_pillow(np.frombuffer(file, np.uint8), "L").pixels.shape == (6, 8, 1)


def test_pixels_come_through() -> None:
    """A lossless kind gives the pixels that were written."""
    np.testing.assert_array_equal(PIXELS, decode_with_pillow(written("BMP"), "RGB").pixels)


@pytest.mark.parametrize("data", [b"", b"no picture at all", written("BMP")[:60], written("TIFF")[:40]])
def test_what_pillow_cannot_read_is_a_value_error(data: bytes) -> None:
    """Whatever Pillow raises becomes a ValueError of one line."""
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        decode_with_pillow(data, "RGB")


def test_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that Pillow refuses for its size is a ValueError."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match="exceeds limit"):
        decode_with_pillow(written("BMP"), "RGB")


def test_warnings_stay_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Pillow only warns of is decoded, and the warning reaches the caller."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.warns(Image.DecompressionBombWarning):
        assert decode_with_pillow(written("BMP"), "RGB").pixels.shape == (6, 8, 3)
