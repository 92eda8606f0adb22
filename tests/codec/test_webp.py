"""WebP by libwebp against Pillow, which brings another version of it, and against damage."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import _native
from tests.codec.native_pictures import assert_pillows, by_pillow, damaged, decode, decode_region

pytestmark = pytest.mark.skipif(_native.build_info()["libwebp"].startswith("none"), reason="a build without libwebp")


def webp(width: int, height: int, *, mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    """A picture of smooth colours, hard edges and noise."""
    random = np.random.default_rng(seed)
    y, x = np.arange(height)[:, None, None], np.arange(width)[None, :, None]
    smooth = 120 + 100 * np.sin((x * [5, 3, 1, 2] + y * [1, 4, 6, 3]) / 16 + seed)
    pixels = np.where((x // 7 + y // 5) % 3 == 0, random.integers(0, 256, 4), smooth)
    noise = random.normal(0, random.integers(0, 30), (height, width, 4))
    image = Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.convert(mode).save(file, "WEBP", **{"method": 0, **options})
    return file.getvalue()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_pixels_are_pillows(data: st.DataObject) -> None:
    """Lossy and lossless, with alpha and without: the whole picture and any region have Pillow's pixels."""
    width, height = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    file = webp(
        width,
        height,
        mode=data.draw(st.sampled_from(["RGB", "RGBA"])),
        seed=data.draw(st.integers(0, 1 << 32)),
        lossless=data.draw(st.booleans()),
        quality=data.draw(st.integers(0, 100)),
    )
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    assert_pillows(file, (x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))))


@pytest.mark.parametrize("seed", range(8))
def test_alpha_of_every_row_of_a_lossy_picture(seed: int) -> None:
    """libwebp's own crop gives alpha of other rows, or none, in one of ten regions."""
    file = webp(4, 17, mode="RGBA", seed=seed, lossless=False, quality=0)
    for y in range(17):
        assert_pillows(file, (seed % 4, y, 1, 1))


def test_animations_are_left_to_pillow() -> None:
    """Pillow puts the frames of an animation together."""
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:])
    assert decode(file.getvalue(), (8, 8), 3)[0] == _native.UNSUPPORTED


@pytest.mark.parametrize("options", [{}, {"mode": "RGBA"}, {"lossless": True, "mode": "RGBA"}])
def test_damage_is_seen_or_pillows(options: dict[str, Any]) -> None:
    """A file cut anywhere, or with any bit flipped, gives Pillow's pixels, or none."""
    outcomes = set()
    for file in damaged(webp(9, 6, quality=10, exif=b"abcd", **options)):
        status, pixels = decode(file, (6, 9), 4)
        outcomes.add(status)
        if status == _native.OK:
            expected = by_pillow(file, "RGBA")
            np.testing.assert_array_equal(expected, pixels)
            status, region = decode_region(file, (3, 2, 4, 2), 4)
            assert status == _native.OK
            np.testing.assert_array_equal(expected[2:4, 3:7], region)
    assert {_native.OK, _native.TRUNCATED, _native.CORRUPT} <= outcomes


def test_every_prefix_is_truncated() -> None:
    """A file cut anywhere is TRUNCATED, even where only what describes it is missing."""
    file = webp(9, 6, exif=b"abcd")
    assert {_native.TRUNCATED} == {decode(file[:size], (6, 9), 3)[0] for size in range(len(file))}


def test_boxes_outside_are_refused() -> None:
    """A box that leaves the picture is BAD_SHAPE."""
    boxes = [(0, 0, 10, 6), (0, 0, 9, 7), (9, 0, 1, 1)]
    assert [_native.BAD_SHAPE] * 3 == [decode_region(webp(9, 6), box, 3)[0] for box in boxes]


def test_golden_pixels() -> None:
    """Pixels have not changed since they were first compared with Pillow's."""
    status, pixels = decode(bytes.fromhex(SMALL), (5, 6), 3)
    assert status == _native.OK
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN


SMALL = (
    "52494646300000005745425056503820240000005001009d012a060005000900ac25a00006068000fee0773fdfb9bbdd7dfc134ce4000000"
)
GOLDEN = "c346c3a867b4588bdd047fd7bcaea3eb6bee8bdf724fe962d21ba486234c52c3"
