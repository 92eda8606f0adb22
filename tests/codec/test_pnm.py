"""The native PNM reader against Pillow, and against damage."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import _native
from fastio.codec.pillow import decode_with_pillow
from tests.codec.native_pictures import assert_pillows, by_pillow, damaged, decode, decode_region

BITS = {b"P4": 1, b"P5": 8, b"P6": 24}
SPACES = (b" ", b"\n", b"\t\r", b"\v\f ", b" #a comment\n", b"\n# 7 of them\r#\n")


def pnm(
    kind: bytes, width: int, height: int, *, spaces: Sequence[bytes] = (b"\n", b" ", b"\n"), seed: int = 0
) -> bytes:
    """A file with random pixels, what stands between its numbers, and 255 as the maximum."""
    pixels = np.random.default_rng(seed).bytes((width * BITS[kind] + 7) // 8 * height)
    maximum = b"" if kind == b"P4" else spaces[2] + b"255"
    return kind + spaces[0] + b"%d" % width + spaces[1] + b"%d" % height + maximum + b"\n" + pixels


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pixels_are_pillows(data: st.DataObject) -> None:
    """Bits, greys and colours under any header: the whole picture and any region have Pillow's pixels."""
    width, height = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 20))
    spaces = [data.draw(st.sampled_from(SPACES[:4]))]
    spaces += [data.draw(st.sampled_from(SPACES[:4])) + data.draw(st.sampled_from((b"", *SPACES))) for _ in range(2)]
    spaces[0] += data.draw(st.sampled_from((b"", *SPACES)))
    file = pnm(
        data.draw(st.sampled_from(sorted(BITS))), width, height, spaces=spaces, seed=data.draw(st.integers(0, 99))
    )
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    assert_pillows(file, (x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))))


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_pillows_own_files(mode: str) -> None:
    """What Pillow writes we read as Pillow does."""
    pixels = np.random.default_rng(0).integers(0, 256, (21, 33, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "PPM")
    assert_pillows(file.getvalue(), (3, 4, 20, 10))


LEFT_TO_PILLOW = {
    "numbers as text": b"P2 2 1 255 17 200\n",
    "bits as text": b"P1 2 1 1 0\n",
    "another maximum": b"P5 2 1 100 ab",
    "16 bits": b"P5 2 1 65535 abcd",
    "16 bits of colour": b"P6 2 1 65535 abcdefghijkl",
    "a comment within a number": b"P5 2 1 2#a\n55 ab",
    "a sign": b"P5 2 1 +255 ab",
    "a line below a digit": b"P5 2 1 2_55 ab",
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_left_to_pillow(name: str) -> None:
    """What we do not read as Pillow does is UNSUPPORTED, and Pillow reads it."""
    file = LEFT_TO_PILLOW[name]
    assert decode(file, (1, 2), 3)[0] == _native.UNSUPPORTED
    assert decode_with_pillow(file, "RGB").pixels.shape == (1, 2, 3)


@pytest.mark.parametrize("kind", sorted(BITS))
def test_damage_is_seen_or_pillows(kind: bytes) -> None:
    """A file cut anywhere, or with any bit flipped, gives Pillow's pixels, or none."""
    outcomes = set()
    for file in damaged(pnm(kind, 3, 2)):
        status, pixels = decode(file, (2, 3), 4)
        outcomes.add(status)
        if status == _native.OK:
            np.testing.assert_array_equal(by_pillow(file, "RGBA"), pixels)
        elif status in (_native.TRUNCATED, _native.CORRUPT):
            with pytest.raises(ValueError, match="Pillow"):
                decode_with_pillow(file, "RGB")
    assert {_native.OK, _native.TRUNCATED, _native.BAD_SHAPE, _native.UNSUPPORTED} <= outcomes


def test_boxes_outside_are_refused() -> None:
    """A box that leaves the picture is BAD_SHAPE."""
    boxes = [(0, 0, 6, 4), (0, 0, 5, 5), (5, 0, 1, 1), (0, 3, 1, 2)]
    assert [_native.BAD_SHAPE] * 4 == [decode_region(pnm(b"P6", 5, 4), box, 3)[0] for box in boxes]


def test_golden_pixels() -> None:
    """Pixels have not changed since they were first compared with Pillow's."""
    digest = hashlib.sha256()
    for kind in sorted(BITS):
        status, pixels = decode(pnm(kind, 13, 11), (11, 13), 4)
        assert status == _native.OK
        digest.update(pixels.tobytes())
    assert digest.hexdigest() == GOLDEN


GOLDEN = "63a9e8018ce84a6ba0dcef5c620e3780fdb2f937eab1953ff4380281bfc93c54"
