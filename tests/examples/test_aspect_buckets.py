"""The example of buckets trains on batches of several shapes, each photo once, without those that are too small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


def test_it_learns_from_batches_of_several_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 24 photos, two are too small; the others come once an epoch in two shapes, and the loss falls."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    sizes = [(30, 90), (90, 30), *[((48, 64), (64, 48), (48, 96))[number % 3] for number in range(22)]]
    for number, (height, width) in enumerate(sizes):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (3, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR).save(folder / f"{number}.png")

    output = run_example(
        "aspect_buckets.py", "--epochs", "4", "--pixels", "1024", "--multiple-of", "8", "--batch-size", "4"
    )

    assert "22 of 24 photos" in output
    losses = numbers("loss", output)
    assert len(losses) == 4
    assert losses[3] < losses[0]
    assert "22 of 22 samples once" in output
    assert output.count(", 2 shapes, ") == 4
