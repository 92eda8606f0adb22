"""GIFs, which Pillow decodes: their headers and ends as native code reads them, and their pixels."""

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
from tests.codec.gif_writer import GifRecipe, write_gif
from tests.codec.native_pictures import damaged, decode, header_of, packing_status

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
    """Any kind of GIF, small."""
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
@given(recipes())
def test_sizes_are_pillows(recipe: GifRecipe) -> None:
    """The header gives the size that Pillow decodes to, and the decoder is Pillow."""
    file, (width, height) = write_gif(recipe), size_of(recipe)

    assert [_native.OK, height, width, 3] == header_of(file).tolist()[:4]
    assert (height, width, 3) == decode_with_pillow(file, "RGB").pixels.shape
    assert _native.UNSUPPORTED == decode(file, (height, width), 3)[0]


def test_first_frame_of_several() -> None:
    """Of an animation, the first frame is taken."""
    frames = [Image.new("P", (8, 8), index) for index in (1, 2)]
    for frame in frames:
        frame.putpalette(RAMP[::-1])
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], loop=0)

    assert [254, 254, 254] == decode_with_pillow(file.getvalue(), "RGB").pixels[3, 3].tolist()


COLORS = bytes(range(7, 19))
SMALL = [
    GifRecipe((5, 4), (0, 0, 5, 4), 2, palette=COLORS, comment=b"a"),
    GifRecipe((6, 4), (1, 1, 5, 3), 4, interlaced=True, local_palette=COLORS, transparent=2, runs=3),
]


@pytest.mark.parametrize("recipe", SMALL)
def test_cut_off(recipe: GifRecipe) -> None:
    """Every prefix is seen to be one; what Pillow still decodes is packed."""
    file = write_gif(recipe)
    for size in range(13, len(file)):
        status = packing_status(file[:size])
        try:
            decode_with_pillow(file[:size], "RGB")
        except ValueError:
            assert status in (_native.TRUNCATED, _native.CORRUPT)
        else:
            assert status == _native.OK


@pytest.mark.parametrize("recipe", SMALL)
def test_damage_in_headers(recipe: GifRecipe) -> None:
    """Any bit flipped: a header is read, or refused."""
    statuses = {int(header_of(file)[0]) for file in damaged(write_gif(recipe))}

    assert statuses <= {_native.OK, _native.TRUNCATED, _native.CORRUPT, _native.NOT_IMAGE}


def test_golden_pixels() -> None:
    """Pixels are those of the native decoder that there was."""
    file = write_gif(GifRecipe((14, 12), (2, 1, 11, 10), 5, interlaced=True, palette=COLORS * 8, transparent=1, runs=2))
    pixels = decode_with_pillow(file, "RGBA").pixels

    assert pixels.shape == (12, 14, 4)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN


GOLDEN = "af45cdac3248ac98b886a698bc2bf57b5ea097d4a1516efd2ba85ac393f116b5"
