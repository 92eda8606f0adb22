"""The example of latents computes and adds arrays of several shapes by its docstring, and learns from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastio import FastDataset
from tests.examples.running import EXAMPLES, numbers, run_example


def test_a_denoiser_learns_from_latents_of_several_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The photos get latents of their own shapes, each comes once an epoch, and the loss falls."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    sizes = [((48, 64), (64, 48), (50, 101))[number % 3] for number in range(20)]
    for number, (height, width) in enumerate(sizes):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8)).save(folder / f"{number:02d}.png")
    shutil.copy(EXAMPLES / "latents.py", tmp_path)

    output = run_example("latents.py", "--epochs", "6", "--batch-size", "4")

    with FastDataset("photos.lmdb") as dataset:
        for key, sample in zip(dataset.keys, dataset, strict=True):
            height, width = sizes[int(Path(key).stem)]
            assert (4, height // 8, width // 8) == sample["latent"].shape
    losses = numbers("loss", output)
    assert losses[-1] < losses[0]
    assert output.count(", 3 shapes") == 6
    assert "20 of 20 samples once, bytes verified" in output.splitlines()[-1]
