"""FastLoader says by name that a class-sorted store should be shuffled when it is packed."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader
from fastio.samplers.order import Shuffle, full_order
from tests.conftest import encode, pictures, write_store

COUNT = 400
IN_CLASSES = np.arange(COUNT) // 4


@pytest.fixture
def big_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small samples that the block shuffle takes for photos of 1 MiB: 400 of them are a dozen windows."""

    def sizes(dataset: FastDataset) -> NDArray[np.int64]:
        return np.full(len(dataset), 1 << 20, np.int64)

    monkeypatch.setattr("fastio.selection.chosen.sample_bytes", sizes)


def said(path: Path, labels: NDArray[np.int64] | None, caplog: pytest.LogCaptureFixture, *, shuffle: Shuffle) -> str:
    """What a loader logs in two epochs."""
    store = write_store(path / "x.h5", [encode(pictures(1)[0])] * COUNT, labels)
    with caplog.at_level(logging.WARNING), FastLoader(store, 32, shuffle=shuffle) as loader:
        for _ in range(2):
            assert sum(1 for _ in loader) == -(-COUNT // 32)
    return "\n".join(caplog.messages)


@pytest.mark.usefixtures("big_samples")
def test_a_sorted_store_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the store, the score and the remedy; the second epoch does not repeat it."""
    message = said(tmp_path, IN_CLASSES, caplog, shuffle=True)

    assert message.count("`fastio pack --shuffle SEED`") == 1
    assert f"{tmp_path / 'x.h5'}: with shuffle=True a batch of 32 has 0." in message


@pytest.mark.usefixtures("big_samples")
@pytest.mark.parametrize(
    ("labels", "shuffle"),
    [
        (IN_CLASSES[full_order(COUNT, seed=1, epoch=0)], True),
        (IN_CLASSES, "full"),
        (IN_CLASSES, False),
        (None, True),
        (np.stack([IN_CLASSES, IN_CLASSES], axis=1), True),
    ],
    ids=["packed shuffled", "full", "in order", "no labels", "two labels a sample"],
)
def test_nothing_to_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, labels: NDArray[np.int64] | None, shuffle: Shuffle
) -> None:
    """A store that was shuffled, another order, or labels that are no classes."""
    assert said(tmp_path, labels, caplog, shuffle=shuffle) == ""


def test_a_small_store_is_one_window(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What fits into a window is mixed as by a full shuffle, sorted or not."""
    assert said(tmp_path, IN_CLASSES, caplog, shuffle=True) == ""
