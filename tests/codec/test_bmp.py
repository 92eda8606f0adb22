"""The native BMP reader against Pillow, and against damage."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import _native
from fastio.codec.pillow import decode_with_pillow
from tests.codec.bmp_writer import MASKS, BmpRecipe, write_bmp
from tests.codec.native_pictures import assert_pillows, by_pillow, damaged, decode, decode_region


@st.composite
def recipes(draw: st.DrawFn) -> BmpRecipe:
    """Any kind of BMP that is decoded natively, small."""
    bits = draw(st.sampled_from([1, 4, 8, 16, 24, 32]))
    header_size = draw(st.sampled_from([12, 40, 52, 56, 64, 108, 124]))
    masks = None
    palette, colors = b"", 0
    if bits <= 8:
        most = 1 << bits
        colors = most if header_size == 12 else draw(st.sampled_from([most, draw(st.integers(1, most))]))
        entry = 3 if header_size == 12 else 4
        if bits != 4 and colors == most and draw(st.booleans()):
            palette = b"".join(
                bytes([grey]) * 3 + bytes(entry - 3) for grey in np.linspace(0, 255, most, dtype=np.uint8)
            )
        else:
            palette = b"\1" + draw(st.binary(min_size=entry * colors - 1, max_size=entry * colors - 1))
    elif header_size > 12 and draw(st.booleans()):
        masks = draw(st.sampled_from([m for m in MASKS[bits] if header_size >= 56 or m[3] == 0]))
        masks = None if bits == 32 and not any(masks) and header_size < 56 else masks
    return BmpRecipe(
        width=draw(st.integers(1, 40)),
        height=draw(st.integers(1, 20)),
        bits=bits,
        header_size=header_size,
        top_down=header_size > 12 and draw(st.booleans()),
        palette=palette,
        colors=colors,
        masks=masks,
        gap=draw(st.sampled_from([0, 0, 1, 5])) if bits > 8 else 0,
        seed=draw(st.integers(0, 1 << 32)),
    )


@settings(max_examples=80, deadline=None)
@given(recipes(), st.data())
def test_pixels_are_pillows(recipe: BmpRecipe, data: st.DataObject) -> None:
    """Every kind of BMP, and every region of it, gives Pillow's pixels to the bit."""
    x, y = data.draw(st.integers(0, recipe.width - 1)), data.draw(st.integers(0, recipe.height - 1))
    box = (x, y, data.draw(st.integers(1, recipe.width - x)), data.draw(st.integers(1, recipe.height - y)))
    assert_pillows(write_bmp(recipe), box)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_pillows_own_files(mode: str) -> None:
    """What Pillow writes we read as Pillow does."""
    pixels = np.random.default_rng(0).integers(0, 256, (21, 33, 4), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert("RGB" if mode in ("1", "P") else "RGBA").convert(mode).save(buffer, "BMP")
    assert_pillows(buffer.getvalue(), (3, 4, 20, 10))


LEFT_TO_PILLOW = {
    "run lengths": BmpRecipe(4, 2, 8, palette=bytes(1024), compression=1),
    "a JPEG inside": BmpRecipe(4, 2, 24, compression=4),
    "masks that nobody writes": BmpRecipe(4, 2, 32, masks=(0xFF, 0xFF0000, 0xFF00, 0)),
    "more colours than indices": BmpRecipe(4, 2, 8, palette=bytes(4 * 300), colors=300),
    "black and white in 8 bits": BmpRecipe(16, 2, 8, palette=bytes([0, 0, 0, 0, 255, 255, 255, 0]), colors=2),
    "masks and a palette": BmpRecipe(4, 2, 8, palette=bytes(1024), masks=(0xFF0000, 0xFF00, 0xFF, 0)),
    "2 bits": BmpRecipe(4, 2, 2, palette=bytes(16)),
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_left_to_pillow(name: str) -> None:
    """What we do not read as Pillow does is UNSUPPORTED."""
    recipe = LEFT_TO_PILLOW[name]
    assert decode(write_bmp(recipe), (recipe.height, recipe.width), 3)[0] == _native.UNSUPPORTED


SMALL = [
    BmpRecipe(3, 2),
    BmpRecipe(3, 2, 4, top_down=True, palette=bytes(range(64)), colors=16),
    BmpRecipe(3, 2, 32, header_size=56, masks=(0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
]


@pytest.mark.parametrize("recipe", SMALL)
def test_damage_is_seen_or_pillows(recipe: BmpRecipe) -> None:
    """A file cut anywhere, or with any bit flipped, gives Pillow's pixels, or none."""
    outcomes = set()
    for file in damaged(write_bmp(recipe)):
        status, pixels = decode(file, (2, 3), 3)
        outcomes.add(status)
        if status == _native.OK:
            np.testing.assert_array_equal(by_pillow(file, "RGB"), pixels)
        elif status in (_native.TRUNCATED, _native.CORRUPT):
            with pytest.raises(ValueError, match="Pillow"):
                decode_with_pillow(file, "RGB")
    assert {_native.OK, _native.TRUNCATED, _native.BAD_SHAPE, _native.UNSUPPORTED} <= outcomes


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_rows_too_wide_for_pillow_are_damage() -> None:
    """A width that no memory would hold is the file's fault, not the machine's."""
    file = bytearray(write_bmp(SMALL[2]))
    file[18:22] = ((1 << 26) + 3).to_bytes(4, "little")

    with pytest.raises(ValueError, match="67,108,867 pixels"):
        decode_with_pillow(bytes(file), "RGB")


def test_boxes_outside_are_refused() -> None:
    """A box that leaves the picture is BAD_SHAPE."""
    file = write_bmp(BmpRecipe(5, 4))
    boxes = [(0, 0, 6, 4), (0, 0, 5, 5), (5, 0, 1, 1), (0, 3, 1, 2)]
    assert [_native.BAD_SHAPE] * 4 == [decode_region(file, box, 3)[0] for box in boxes]


def test_golden_pixels() -> None:
    """Pixels have not changed since they were first compared with Pillow's."""
    recipes = [BmpRecipe(13, 11, bits, palette=bytes(range(4 << min(bits, 6))) * 4 ** (bits == 8)) for bits in (4, 8)]
    recipes += [BmpRecipe(13, 11, bits, top_down=True, masks=MASKS[bits][-2 if bits == 32 else 0]) for bits in (16, 24)]
    digest = hashlib.sha256()
    for recipe in recipes:
        status, pixels = decode(write_bmp(recipe), (11, 13), 4)
        assert status == _native.OK
        digest.update(pixels.tobytes())
    assert digest.hexdigest() == GOLDEN


GOLDEN = "40b7c8b69cf40d408ae07686229d270337b9f2864075eb966bdc84edb5dbd831"
