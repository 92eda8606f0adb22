"""Masks, boxes and points over the pictures of a contact sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio.converters.contact_sheet import contact_sheet, shown_samples
from fastio.store import open_store
from tests.dataset.many_fields import write_fields

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
