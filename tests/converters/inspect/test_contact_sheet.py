"""The contact sheet shows what was asked for, and says where a picture cannot be shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont

from fastio.converters.inspect.contact_sheet import contact_sheet, shown_samples
from fastio.errors import FastioError
from fastio.store import open_store
from fastio.types.schema import BYTES, RAW, Field
from tests.conftest import encode, write_store
from tests.dataset.many_fields import write_fields

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


@pytest.mark.parametrize(
    ("shape", "is_planar"),
    [((4, 6), False), ((4, 6, 1), False), ((4, 6, 3), False), ((4, 6, 3), True), ((4, 6, 4), True)],
)
def test_raw_pictures(tmp_path, shape, is_planar):
    """Pixels are shown as they are, whether their channels lie one behind the other or not."""
    field = Field("image", RAW, "|u1", shape)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    stored = np.moveaxis(pixels, -1, 0) if is_planar else pixels
    path = write_store(tmp_path / "s.lmdb", [stored.tobytes()], field=field.planar if is_planar else field)
    with open_store(path) as opened:
        (sample,) = shown_samples(opened, count=1, size=12)
    expected = np.asarray(Image.fromarray(pixels.reshape(4, 6, -1).squeeze()).convert("RGB"))
    assert np.array_equal(expected.repeat(2, 0).repeat(2, 1), np.asarray(sample.picture))


def test_nothing_to_show(tmp_path):
    """A store without images is named."""
    path = write_store(tmp_path / "s.lmdb", [b"x"], field=Field("text", BYTES, "|u1", (None,)))
    with open_store(path) as opened, pytest.raises(FastioError, match="no images"):
        contact_sheet(opened)


# Masks, boxes and points over the pictures of a contact sheet.

GREY = np.full((20, 40, 3), 128, np.uint8)


def drawn(path: Path, values: dict[str, Any], types: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The picture of one sample as it is shown, doubled to 80 x 40 pixels."""
    write_fields(path, [{"image": GREY, **values}], {**types, "image": "image"})
    with open_store(path) as store:
        (sample,) = shown_samples(store, count=1, size=80)
    assert isinstance(sample.picture, Image.Image)
    assert sample.picture.size == (80, 40)
    return np.asarray(sample.picture)


@pytest.mark.parametrize(
    ("form", "box"), [("xyxy", (10, 4, 20, 14)), ("xywh", (10, 4, 10, 10)), ("cxcywh", (15, 9, 10, 10))]
)
def test_boxes_lie_where_they_belong(tmp_path: Path, form: str, box: tuple[int, ...]) -> None:
    """An outline in the scale of the picture, whatever the boxes are written as; the inside stays."""
    pixels = drawn(tmp_path / "s.tar", {"boxes": np.array([box], np.float32)}, {"boxes": form})
    changed = np.argwhere((pixels != 128).any(2))

    assert (changed.min(0).tolist(), changed.max(0).tolist()) == ([8, 20], [28, 40])
    assert (pixels[10:27, 22:39] == 128).all()


def test_a_mask_colours_all_but_class_0(tmp_path: Path) -> None:
    """Each class has a colour of its own; the first field being a mask, the picture is still the picture."""
    mask = np.zeros((20, 40), np.uint8)
    mask[:, 10:20], mask[:, 20:] = 1, 2
    pixels = drawn(tmp_path / "s.tar", {"mask": mask}, {"mask": "mask"})

    assert (pixels[:, :20] == 128).all()
    assert len(np.unique(pixels[:, 20:40].reshape(-1, 3), axis=0)) == 1
    assert (pixels[0, 20] != pixels[0, 40]).any()


def test_what_does_not_belong_is_left_out(tmp_path: Path) -> None:
    """A mask of another size, one that cannot be read, and boxes that are no numbers leave the picture as it is."""
    boxes = np.array([[5, 5, 2, 2], [np.nan] * 4], np.float32)
    other = {"mask": np.ones((5, 5), np.uint8), "boxes": boxes, "points": np.full((1, 2), np.nan, np.float32)}
    types = {"mask": "mask", "boxes": "xyxy", "points": "points"}

    assert (drawn(tmp_path / "a.tar", other, types) == 128).all()
    assert (drawn(tmp_path / "b.tar", {"mask": b"no picture"}, {"mask": "mask"}) == 128).all()


def test_points_are_dots(tmp_path: Path) -> None:
    """A point lies where its numbers say."""
    points = np.array([[[10, 5], [30, 15]]], np.float32)
    pixels = drawn(tmp_path / "s.tar", {"points": points}, {"points": "points[2]"})

    assert pixels[10, 20].tolist() == pixels[30, 60].tolist() == [255, 255, 0]


def test_a_text_stands_for_a_label(tmp_path: Path) -> None:
    """Without labels, the sheet shows the beginning of the first text."""
    path = write_fields(
        tmp_path / "s.h5", [{"image": GREY, "caption": "a cat " * 200}], {"image": "image", "caption": "text"}
    )
    with open_store(path) as store:
        assert shown_samples(store, count=1, size=80)[0].label.startswith("a cat a cat ")
        assert contact_sheet(store)[1] == []
