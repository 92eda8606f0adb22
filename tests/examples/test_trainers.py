"""Lightning, transformers and torchrun: stopped within an epoch, each goes on with the next sample."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ResNetForImageClassification

from fastio.cli import cli
from tests.examples.class_photos import COUNT, write_class_photos
from tests.examples.running import run_script

TOP = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with photos.lmdb."""
    monkeypatch.chdir(tmp_path)
    write_class_photos(tmp_path / "photos")
    cli(["pack", "photos/", "photos.lmdb", "--jump"], standalone_mode=False)


# Each sample of the folder of checkpoints is told of; no warning is about the data.
@pytest.mark.filterwarnings("ignore:Checkpoint directory:UserWarning")
@pytest.mark.filterwarnings("ignore:The number of training batches:UserWarning")
def test_lightning_goes_on() -> None:
    """The receipt of the epoch sums what came before the stop and after it."""
    name, small = "lightning_module.py", ("photos.lmdb", "--batch-size", "4")
    before = run_script(name, *small, "--steps", "2", "--every", "2")
    after = run_script(name, *small, "--every", "2", "--resume", "checkpoints/last.ckpt")

    assert f"epoch 0: 8 of {COUNT} samples so far" in before
    assert f"epoch 0: {COUNT} of {COUNT} samples once" in after


def test_the_trainer_of_transformers_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the stop together, the model has trained each sample once."""
    trained: list[int] = []
    forward = ResNetForImageClassification.forward

    def noting(self: Any, pixel_values: torch.Tensor, labels: torch.Tensor) -> Any:
        if self.training:
            trained.extend(labels.tolist())
        return forward(self, pixel_values=pixel_values, labels=labels)

    monkeypatch.setattr(ResNetForImageClassification, "forward", noting)
    small = ("hf_trainer.py", "photos.lmdb", "out", "--batch-size", "4")
    run_script(*small, "--steps", "2")
    assert 8 == len(trained)
    output = run_script(*small)

    assert list(range(COUNT)) == sorted(trained)
    assert "eval_loss" in output


def test_torchrun_goes_on_with_other_ranks() -> None:
    """Two processes stop at a checkpoint, three go on: the receipt of all ranks has each sample once."""
    hidden = ("SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, "-m", "tests.examples.start_ranks", "torchrun.py", "photos.lmdb", "2:--stop", "3:"]
    environment = kept | {"PYTHONPATH": str(TOP), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr

    assert "epoch 0: 3 ranks" in done.stdout
    assert f"{COUNT} of {COUNT} samples once" in done.stdout
