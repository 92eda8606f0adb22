"""The example of patches trains on packed photos of all proportions, each once an epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


def test_it_learns_from_packed_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 photos of two classes, dark and light, fill few rows, and the loss falls."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for number in range(24):
        height, width = ((48, 64), (64, 48), (30, 96), (20, 25))[number % 4]
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 128, (height, width, 3), np.uint8) + np.uint8(127 * (number % 2))
        Image.fromarray(pixels).save(folder / f"{number}.png")

    output = run_example("patches.py", "--tokens", "12", "--budget", "60", "--epochs", "5")

    losses = numbers("loss", output)
    assert len(losses) == 5
    assert losses[4] < losses[0] / 2
    assert "24 of 24 samples once" in output
    assert " % filled" in output
