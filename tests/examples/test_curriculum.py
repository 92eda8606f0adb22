"""The example of a curriculum draws from few pictures first and from all at the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.examples.class_photos import COUNT, write_class_photos
from tests.examples.running import numbers, run_example


def test_from_easy_pictures_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of the last epoch are equal, and each epoch draws as many pictures as there are."""
    monkeypatch.chdir(tmp_path)
    write_class_photos(tmp_path / "photos")

    output = run_example("curriculum.py", "--epochs", "3", "--batch-size", "8", "--size", "24")

    drawn_from = numbers("from", output)
    assert COUNT == drawn_from[-1]
    assert (np.diff(drawn_from) >= 0).all()
    assert f"{COUNT} of {COUNT} samples" in output.splitlines()[-1]
