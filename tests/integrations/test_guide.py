"""The guide's lines for Lightning, accelerate and transformers run as they stand there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from tests.conftest import encode, pictures, write_store

GUIDE = Path(__file__).parents[2] / "fastio" / "guide" / "loading.md"
COUNT = 256  # two batches of the guide's 128


class Classifier(pl.LightningModule):
    """The least that takes pictures and labels; counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 3)
        self.steps = 0

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.steps += 1
        logits = self.layer(pixel_values.flatten(1) / 255)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self(*batch)["loss"]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self(*batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with train.lmdb and val.lmdb; what accelerate keeps for the whole process is forgotten afterwards."""
    values = [encode(pixels) for pixels in pictures(COUNT)]
    for name in ("train", "val"):
        write_store(tmp_path / f"{name}.lmdb", values, np.arange(COUNT, dtype=np.int64) % 3)
    monkeypatch.chdir(tmp_path)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


# Lightning's logger and its interval are left at their defaults: here are no TensorBoard and few batches.
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed:UserWarning")
@pytest.mark.filterwarnings("ignore:The number of training batches:UserWarning")
@pytest.mark.parametrize(("word", "steps"), [("FastDataModule", 10), ("Accelerator()", 0), ("Trainer,", 4)])
@pytest.mark.usefixtures("place")
def test_the_lines_run(word: str, steps: int) -> None:
    """Two epochs of two batches, and of validation where the lines have it."""
    (lines,) = [block.split("```")[0] for block in GUIDE.read_text().split("```python\n") if word in block]
    model = Classifier()
    found = {"model": model, "optimizer": model.configure_optimizers()}
    exec(compile(lines, "loading.md", "exec"), found)

    assert steps == model.steps
    if steps == 0:
        assert len(found["labels"]) == 128
