"""The contact sheet shows what was asked for, and says where a picture cannot be shown."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageFont

from fastio.converters.contact_sheet import contact_sheet
from fastio.errors import FastioError
from fastio.store import open_store
from fastio.types.schema import BYTES, Field
from tests.conftest import encode, write_store

RED, BLUE = (255, 0, 0), (0, 0, 255)


def plain(colour, size=8):
    """A picture of one colour."""
    return encode(np.full((size, size, 3), colour, np.uint8))


@pytest.fixture
def store(tmp_path):
    """Three red, three blue pictures of two named classes."""
    values = [plain(RED)] * 3 + [plain(BLUE)] * 3
    labels = np.repeat(np.arange(2, dtype=np.int64), 3)
    with open_store(write_store(tmp_path / "s.lmdb", values, labels, metadata={"classes": ["red", "blue"]})) as opened:
        yield opened


def share(sheet, colour):
    """How much of the sheet has exactly this colour."""
    return float((np.asarray(sheet) == colour).all(axis=2).mean())


def test_every_picture_is_there(store):
    """Half of the pictures' area is red, half is blue."""
    sheet, _ = contact_sheet(store, count=6, columns=3, size=64)
    area = 3 * 64 * 64 / (sheet.width * sheet.height)

    assert area == pytest.approx(share(sheet, RED), rel=0.01)
    assert area == pytest.approx(share(sheet, BLUE), rel=0.01)


def test_without_a_seed_the_store_is_covered(store):
    """Two of a sorted store are its first and its last."""
    sheet, _ = contact_sheet(store, count=2, size=64)

    assert share(sheet, RED) > 0 < share(sheet, BLUE)


def test_a_seed_repeats(store):
    """The same seed draws the same sheet."""
    first, second = (contact_sheet(store, count=3, seed=5)[0].tobytes() for _ in range(2))

    assert first == second


def test_labels_are_drawn(store):
    """The text below a picture depends on its label."""
    tall, _ = contact_sheet(store, count=1, size=64)
    below = np.asarray(tall)[-40:]

    assert (below < 100).any()


def test_names_that_the_font_lacks_are_escaped(tmp_path, monkeypatch):
    """Without a font that has them, letters are drawn as their numbers and not as boxes that all look alike."""

    real = ImageFont.truetype

    def bundled_only(font, *args, **options):
        if isinstance(font, str):
            raise OSError("no such font")
        return real(font, *args, **options)

    def sheet_of(name):
        path = write_store(tmp_path / "s.lmdb", [plain(RED)], np.zeros(1, np.int64), metadata={"classes": [name]})
        with open_store(path) as store:
            sheet, _ = contact_sheet(store, size=128)
        path.unlink()
        return sheet.tobytes()

    monkeypatch.setattr("PIL.ImageFont.truetype", bundled_only)

    assert sheet_of("\\u65e5\\u672c") == sheet_of("日本")
    assert sheet_of("日本") != sheet_of("本日")


def test_bad_pictures_are_boxes(tmp_path):
    """A picture that cannot be decoded does not stop the others."""
    values = [plain(RED), b"nothing", plain(RED)[:40], plain(BLUE)]
    with open_store(write_store(tmp_path / "s.lmdb", values)) as opened:
        sheet, problems = contact_sheet(opened, size=64)

    assert share(sheet, RED) > 0 < share(sheet, BLUE)
    assert ["a/0001.png", "a/0002.png"] == [problem.key for problem in problems]


def test_damage_is_not_drawn(tmp_path):
    """A picture that differs from its checksum is a box with words, although it would still decode."""
    path = write_store(tmp_path / "s.h5", [encode(np.full((8, 8, 3), RED, np.uint8), "BMP"), plain(BLUE)])
    with open_store(path) as opened:
        at = int(opened.spans("image", np.array([0])).starts[0])
    data = bytearray(path.read_bytes())
    data[at + 100] ^= 1
    path.write_bytes(data)
    with open_store(path) as opened:
        sheet, problems = contact_sheet(opened, size=64)

    assert 0 == share(sheet, RED) < share(sheet, BLUE)
    assert [("a/0000.png", "damaged: differs from its checksum")] == [(p.key, p.problem) for p in problems]


def test_a_whole_store_has_no_problems(store):
    """Nothing is said of whole pictures."""
    assert [] == contact_sheet(store)[1]


def test_nothing_to_show(tmp_path):
    """A store without images is named."""
    path = write_store(tmp_path / "s.lmdb", [b"x"], field=Field("text", BYTES, "|u1", (None,)))
    with open_store(path) as opened, pytest.raises(FastioError, match="no images"):
        contact_sheet(opened)
