"""The CIFAR example learns a toy set, from the commands of its docstring."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.conftest import encode
from tests.examples.running import numbers, run_example
from tests.measure.trainer.coloured import CLASSES, coloured


def test_it_learns_from_pngs_and_a_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses fall, and pictures kept for testing are classified far above chance; a line says how far an epoch is."""
    monkeypatch.chdir(tmp_path)
    pixels, labels = coloured(160)
    names = [f"{number:03d}.png" for number in range(len(labels))]
    Path("png").mkdir()
    for name, picture in zip(names, pixels, strict=True):
        Path("png", name).write_bytes(encode(picture))
    Path("labels.pkl").write_bytes(pickle.dumps(dict(zip(names, labels.tolist(), strict=True))))

    output = run_example("cifar.py", "--epochs", "4", "--batch-size", "16", "--width", "8")

    losses, accuracies = numbers("loss", output), numbers("accuracy", output)
    assert 4 == len(losses) == len(accuracies)
    assert "epoch 3: 5 of 9 steps\r" in output
    assert losses[-1] < losses[0]
    assert accuracies[-1] > 2 * 100 / CLASSES, output
