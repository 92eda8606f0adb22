"""The example of chats with pictures trains on packed text and patches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.running import numbers, run_example


def test_it_learns_what_pictures_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes its 200 chats, and in 20 steps the loss falls below that of guessing, 1.5 * ln(4) / 2.5 = 0.83."""
    monkeypatch.chdir(tmp_path)
    losses = numbers("loss", output := run_example("pictured_chats.py"))

    assert len(losses) == 20
    assert losses[0] > 1.8
    assert sum(losses[-4:]) / 4 < 0.75
    assert "rows of 200 samples" in output
    assert "with patches" in output
