"""JAX and Keras train on arrays, where they are installed; torch is not imported there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.class_photos import write_red_and_green
from tests.examples.running import numbers, run_example, run_script

TINY = ("--batch-size", "8", "--epochs")


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of two classes in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_red_and_green(tmp_path / "photos")


def test_a_loop_of_jax_learns_and_goes_on() -> None:
    """The photos of the other folder are told apart, and a second run goes on from the checkpoint of the first."""
    pytest.importorskip("jax")
    first = run_example("jax_loop.py", *TINY, "4")
    rest = run_script("jax_loop.py", "train.lmdb", "val.lmdb", "loop.npz", *TINY, "8")

    assert 4 == len(numbers("loss", first))
    assert ["epoch 4", "epoch 5", "epoch 6", "epoch 7"] == [line.partition(":")[0] for line in rest.splitlines()]
    assert float(rest.rpartition(", ")[2].partition("%")[0]) > 75


def test_fit_of_keras_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses fall, by whichever backend is installed."""
    backend = next(name for name in ("jax", "tensorflow", "torch") if find_spec(name) is not None)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    pytest.importorskip("keras")
    found = run_example("keras_fit.py", *TINY, "8")

    losses = numbers("loss:", found)
    assert losses[-1] < losses[0]
