"""Photos that are not packed: the example learns them where they lie, before and after `fastio index`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.converters.sources.test_in_place import settle
from tests.examples.running import numbers, run_example


def test_it_learns_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses fall, photos kept for testing are told apart, and nothing in the folder is written."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for number in range(60):
        pixels = random.integers(0, 128, (60, 72, 3), np.uint8)
        pixels[:, :, number % 2] += 100
        folder = Path("photos", ("red", "green")[number % 2])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
    settle(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in Path("photos").rglob("*")}
    tiny = ("--epochs", "4", "--batch-size", "9", "--size", "32", "--width", "8")
    output = run_example("photos_in_place.py", *tiny)
    losses, accuracies = numbers("loss", output), numbers("accuracy", output)

    assert 2 == output.count("60 photos of 2 classes")
    assert 8 == len(losses) == len(accuracies)
    assert losses[3] < losses[0]
    assert losses[7] < losses[4]
    assert accuracies[-1] >= 75, output
    assert before == {path: path.stat().st_mtime_ns for path in Path("photos").rglob("*")}
    assert Path("photos.fastio-index").is_file()
