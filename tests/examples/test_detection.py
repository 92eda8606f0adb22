"""The example of detection learns boxes from mosaics of COCO's pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


def test_boxes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rectangles of two colours on noise: the loss falls, and boxes of unknown pictures are found."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "scenes").mkdir()
    images, annotations = [], []
    for number in range(40):
        pixels = random.integers(0, 80, (48, 64, 3), np.uint8)
        images.append({"id": number, "file_name": f"{number}.png", "width": 64, "height": 48})
        for kind in (0, 1):
            top, left = (int(each) for each in random.integers(0, 24, 2))
            left += 32 * kind if left < 16 else 0
            pixels[top : top + 16, left : left + 16] = np.eye(3, dtype=np.uint8)[kind] * 200 + 20
            box = [left, top, 16, 16]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": kind,
                    "bbox": box,
                    "area": 256,
                    "iscrowd": 0,
                }
            )
        Image.fromarray(pixels).save(tmp_path / "scenes" / f"{number}.png")
    categories = [{"id": 0, "name": "red"}, {"id": 1, "name": "green"}]
    said = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "scenes" / "coco.json").write_text(json.dumps(said))

    output = run_example("detection.py", "--classes", "2", "--size", "64", "--batch-size", "8", "--epochs", "10")

    losses = numbers("loss", output)
    assert losses[-1] < losses[0] / 2
    assert numbers("found", output)[-1] > 40
