"""The native GIF reader against Pillow, and against damage."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import _native
from tests.codec.gif_writer import GifRecipe, write_gif
from tests.codec.native_pictures import assert_pillows, by_pillow, damaged, decode, decode_region

RAMP = bytes(np.repeat(np.arange(256), 3).astype(np.uint8))


def size_of(recipe: GifRecipe) -> tuple[int, int]:
    """Width and height of the picture, which holds screen and frame."""
    x, y, width, height = recipe.frame
    return max(recipe.screen[0], x + width), max(recipe.screen[1], y + height)


@st.composite
def palettes(draw: st.DrawFn) -> bytes:
    """None, colours, or a ramp of greys."""
    colors = 2 << draw(st.integers(0, 7))
    seed = draw(st.integers(0, 99))
    return draw(st.sampled_from([b"", np.random.default_rng(seed).bytes(3 * colors), RAMP[: 3 * colors]]))


@st.composite
def recipes(draw: st.DrawFn) -> GifRecipe:
    """Any kind of GIF that is decoded natively, small."""
    bits = draw(st.integers(2, 8))
    palette, local = draw(palettes()), draw(palettes())
    if palette and not RAMP.startswith(palette) and RAMP.startswith(local):
        local = b""  # Pillow has a way of its own with these
    return GifRecipe(
        screen=(draw(st.integers(1, 30)), draw(st.integers(1, 30))),
        frame=tuple(draw(st.tuples(*[st.sampled_from([0, 0, 3])] * 2, *[st.integers(1, 40)] * 2))),
        bits=bits,
        interlaced=draw(st.booleans()),
        palette=palette,
        local_palette=local,
        transparent=draw(st.sampled_from([None, 0, 3, 200])),
        runs=draw(st.sampled_from([1, 2, 9, 900])),
        clear_every=draw(st.sampled_from([3, 300, 5000])),
        comment=draw(st.sampled_from([b"", b"a word"])),
        seed=draw(st.integers(0, 1 << 32)),
    )


@settings(max_examples=60, deadline=None)
@given(recipes(), st.data())
def test_pixels_are_pillows(recipe: GifRecipe, data: st.DataObject) -> None:
    """Every kind of GIF, and every region of it, gives Pillow's pixels to the bit."""
    width, height = size_of(recipe)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = (x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y)))
    assert_pillows(write_gif(recipe), box)


@pytest.mark.parametrize("runs", [1, 40])
def test_full_tables(runs: int) -> None:
    """Codes go on, 12 bits long, where the table is full."""
    recipe = GifRecipe((100, 90), (0, 0, 100, 90), palette=RAMP[::-1], runs=runs, clear_every=1 << 20)
    assert_pillows(write_gif(recipe), (10, 60, 50, 9))


def test_first_frame_of_several() -> None:
    """Of an animation, the first frame is taken, as by Pillow."""
    frames = [Image.new("P", (8, 8), index) for index in (1, 2)]
    for frame in frames:
        frame.putpalette(RAMP[::-1])
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], loop=0)
    assert_pillows(file.getvalue(), (1, 1, 3, 3))


COLORS = bytes(range(7, 19))
LEFT_TO_PILLOW = {
    "greys over colours": write_gif(GifRecipe((3, 2), (0, 0, 3, 2), 2, palette=COLORS, local_palette=RAMP[:12])),
    "an empty extension": write_gif(GifRecipe((3, 2), (0, 0, 3, 2), 2)).replace(b",", b"!\xf9\0,", 1),
    "no frame": write_gif(GifRecipe((3, 2), (0, 0, 3, 2), 2)).replace(b",", b";", 1),
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_left_to_pillow(name: str) -> None:
    """What we do not read as Pillow does is UNSUPPORTED."""
    assert decode(LEFT_TO_PILLOW[name], (2, 3), 3)[0] == _native.UNSUPPORTED


SMALL = [
    GifRecipe((5, 4), (0, 0, 5, 4), 2, palette=COLORS, comment=b"a"),
    GifRecipe((6, 4), (1, 1, 5, 3), 4, interlaced=True, local_palette=COLORS, transparent=2, runs=3),
]


@pytest.mark.parametrize("recipe", SMALL)
def test_damage_is_seen_or_pillows(recipe: GifRecipe) -> None:
    """A file cut anywhere, or with any bit flipped, gives Pillow's pixels, or none."""
    outcomes, (width, height) = set(), size_of(recipe)
    for file in damaged(write_gif(recipe)):
        status, pixels = decode(file, (height, width), 4)
        outcomes.add(status)
        if status == _native.OK:
            np.testing.assert_array_equal(by_pillow(file, "RGBA"), pixels)
    assert {_native.OK, _native.TRUNCATED, _native.BAD_SHAPE, _native.UNSUPPORTED} <= outcomes


def test_boxes_outside_are_refused() -> None:
    """A box that leaves the picture is BAD_SHAPE."""
    boxes = [(0, 0, 6, 4), (0, 0, 5, 5), (5, 0, 1, 1)]
    assert [_native.BAD_SHAPE] * 3 == [decode_region(write_gif(SMALL[0]), box, 3)[0] for box in boxes]


def test_golden_pixels() -> None:
    """Pixels have not changed since they were first compared with Pillow's."""
    file = write_gif(GifRecipe((14, 12), (2, 1, 11, 10), 5, interlaced=True, palette=COLORS * 8, transparent=1, runs=2))
    status, pixels = decode(file, (12, 14), 4)
    assert status == _native.OK
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN


GOLDEN = "af45cdac3248ac98b886a698bc2bf57b5ea097d4a1516efd2ba85ac393f116b5"
