"""The example of sets of photos packs lists, and learns from sets of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


def test_it_learns_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dark and bright sets of one to three photos, and an empty one, are told apart after some epochs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for label, level in (("bright", 150), ("dark", 20)):
        for number in range(8):
            folder = tmp_path / "photos" / label / f"{number}"
            folder.mkdir(parents=True)
            for photo in range(number % 4):
                pixels = rng.integers(level, level + 90, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{photo}.jpg")

    output = run_example("photo_sets.py", "--epochs", "12", "--batch-size", "4", "--size", "24")

    losses = numbers("loss", output)
    assert "24 photos in 12 sets" in output
    assert losses[-1] < 0.6 * losses[0]
    assert output.count("12 of 12 samples once") == 12
