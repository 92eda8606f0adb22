"""The examples on samples of many fields learn toy sets, from the commands of their docstrings."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_captions_are_matched(folder: Path) -> None:
    """Squares of three colours in four corners: the loss falls, and captions of unknown pictures are recognised."""
    colours, rows, columns = ("red", "green", "blue"), ("top", "bottom"), ("left", "right")
    kinds = list(itertools.product(range(3), range(2), range(2)))
    random = np.random.default_rng(0)
    lines = ["file_name,caption"]
    (folder / "photos").mkdir()
    for number in range(120):
        colour, row, column = kinds[number % 11]
        pixels = random.integers(0, 80, (40, 40, 3), np.uint8)
        pixels[20 * row : 20 * row + 20, 20 * column : 20 * column + 20, colour] += 150
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
        lines.append(f"{number}.png,a {colours[colour]} square at the {rows[row]} {columns[column]}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")

    tiny = ("--epochs", "4", "--batch-size", "12", "--size", "32", "--width", "32")

    output = run_example("clip_pairs.py", *tiny)

    losses = numbers("loss", output)
    assert losses[-1] < losses[0]
    assert numbers("right caption", output)[-1] > 100 / 6


def test_shapes_are_found(folder: Path) -> None:
    """Bright rectangles of two colours on noise: the loss falls, and unknown scenes are segmented."""
    random = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir()
    for number in range(20):
        pixels = random.integers(0, 100, (40, 48, 3), np.uint8)
        mask = np.zeros((40, 48), np.uint8)
        for kind in (1, 2):
            top, left = random.integers(0, 20), random.integers(0, 24)
            mask[top : top + 18, left : left + 18] = kind
        for kind in (1, 2):
            pixels[mask == kind, kind] += 120
        mask[0] = 255
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")

    output = run_example("segmentation.py", "--classes", "3", "--crop", "32", "--batch-size", "4", "--epochs", "4")

    losses = numbers("loss", output)
    assert losses[-1] < losses[0]
    assert numbers("IoU", output)[-1] > 50
