"""The example of guided pictures packs photos, edges and captions, and learns from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


def test_it_learns_to_denoise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smooth photos with none to two captions are learnt, in epochs with an exact receipt, and one is painted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(12):
        y, x = np.mgrid[0:40, 0:50]
        pixels = np.stack((x * 5, y * 6, np.full_like(x, 20 * number)), axis=-1).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.jpg")
        if number % 3:
            captions = [f"picture {number}", f"a level of {number}"][: number % 3]
            (tmp_path / f"photos/{number}.txt").write_text("\n".join(captions))

    output = run_example("guided.py", "--epochs", "8", "--batch-size", "4", "--size", "16")

    losses = numbers("loss", output)
    assert losses[-1] < 0.8 * losses[0]
    assert output.count("12 of 12 samples once") == 8
    assert "(1, 3, 16, 16)" in output
