"""The GPU's benchmark runs to its end without a GPU, with a decoder that stands for one."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from benchmarks import gpu
from benchmarks.gpu_training import decoding
from fastio.trainer import MODELS


class FakeGpu:
    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        return [torch.from_numpy(np.array(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))) for data in encoded]


def pooled(classes: int) -> nn.Module:
    """A network in the place of ResNet-50, which would take a minute here."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))


def test_all_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command gives all five figures, as a table and as JSON."""
    monkeypatch.setattr("fastio.producer.choose.decoder_on", lambda device, threads: FakeGpu())
    monkeypatch.setitem(MODELS, "resnet50", replace(MODELS["resnet50"], build=pooled))
    monkeypatch.setattr(gpu, "STEPS", 6)
    out = tmp_path / "gpu.json"
    run = CliRunner().invoke(gpu.main, ["--device", "cpu", "--tiny", "--out", str(out)], catch_exceptions=False)
    assert 0 == run.exit_code, run.output
    result = json.loads(out.read_text())

    assert {"normalise", "overlap", "loader", "cifar_cnn", "resnet50", "decoding"} <= result.keys()
    assert result["decoding"]["levels_apart"]["mean"] < 1
    assert 0 < result["resnet50"]["of_limit"]


def test_without_a_decoder(tmp_path: Path) -> None:
    """Where the GPU's decoder is missing, the result says so in its place."""
    assert "needs a GPU" in decoding(torch.device("cpu"), tmp_path, gpu.TINY)["left_out"]
