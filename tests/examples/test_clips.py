"""The example of clips learns which way a square moves, which no single frame tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import encode
from tests.examples.running import numbers, run_example

FRAMES = 12


def write_videos(folder: Path, *, count: int, seed: int) -> None:
    """A bright square on grey noise: in half of the videos it moves up, in the others down."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        for action, step in (("up", -2), ("down", 2)):
            video = folder / f"{action}_{number:02d}"
            video.mkdir(parents=True)
            left, middle = rng.integers(4, 20), rng.integers(10, 14)
            for frame in range(FRAMES):
                pixels = rng.integers(60, 100, (32, 32, 3), np.uint8)
                top = (middle + step * frame) % 24
                pixels[top : top + 8, left : left + 8] = 250
                (video / f"frame{frame}.png").write_bytes(encode(pixels, "PNG"))


def test_it_tells_motion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most clips of test videos are told apart, and each comes once."""
    monkeypatch.chdir(tmp_path)
    write_videos(tmp_path / "videos" / "train", count=12, seed=0)
    write_videos(tmp_path / "videos" / "test", count=4, seed=1)

    words = ("--epochs", "12", "--frames", "4", "--stride", "1", "--size", "32")
    output = run_example("clips.py", *words)

    assert "train: 48 clips of 24 videos; test: 24 clips of 8 videos, 0 frames in none" in output
    assert [24] == numbers("of", output.splitlines()[-2])
    assert numbers("accuracy", output)[0] > 75
