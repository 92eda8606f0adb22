"""The example of mixing trains with soft labels and functions of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.examples.class_photos import write_class_photos
from tests.examples.running import numbers, run_example


def test_losses_are_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch prints its mean loss, a small finite number."""
    monkeypatch.chdir(tmp_path)
    write_class_photos(tmp_path / "photos")

    output = run_example("mixing.py", "--epochs", "3", "--batch-size", "8", "--size", "24")

    losses = numbers("loss", output)
    assert 3 == len(losses)
    assert np.isfinite(losses).all()
    assert max(losses) < 5
