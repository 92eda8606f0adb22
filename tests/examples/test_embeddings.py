"""The example of embeddings computes them by the command of its docstring, and learns from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.examples.class_photos import COUNT, write_class_photos
from tests.examples.running import EXAMPLES, numbers, run_example


def test_a_head_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss falls, and each sample comes once, with the checksums of both stores."""
    monkeypatch.chdir(tmp_path)
    write_class_photos(tmp_path / "photos")
    shutil.copy(EXAMPLES / "embeddings.py", tmp_path)

    output = run_example("embeddings.py", "--epochs", "8", "--batch-size", "8")

    losses = numbers("loss", output)
    assert losses[-1] < losses[0]
    assert f"{COUNT} of {COUNT} samples once, bytes verified" in output.splitlines()[-1]
