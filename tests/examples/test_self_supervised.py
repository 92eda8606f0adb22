"""The example of views learns to tell photos apart, with two views and with small ones beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.running import numbers, run_example


def test_both_methods_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of their own colours: the loss of SimCLR falls below chance; each photo came once, in as many views."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for number in range(24):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (3, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((64, 48), Image.Resampling.NEAREST).save(folder / f"{number}.png")

    tiny = ("--epochs", "4", "--batch-size", "8", "--size", "24", "--small-size", "16")

    output = run_example("self_supervised.py", *tiny)

    losses = numbers("loss", output)
    assert len(losses) == 8
    assert losses[3] < losses[0]
    assert np.isfinite(losses).all()
    receipts = [line for line in output.splitlines() if line.startswith("receipt")]
    assert ["24 of 24 samples once in 2 views each" in receipts[0], "in 8 views each" in receipts[1]] == [True, True]
