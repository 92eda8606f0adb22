"""The GPU's benchmark runs to its end without a GPU, with a decoder that stands for one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from benchmarks import gpu, gpu_copies
from benchmarks.gpu_training import decoding
from fastio.measure.trainer.run import MODELS


class FakeGpu:
    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        return [torch.from_numpy(np.array(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))) for data in encoded]


def pooled(classes: int) -> nn.Module:
    """A network in the place of ResNet-50, which would take a minute here."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch computes in one thread: small batches are faster so."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that stands for a GPU, and a network that is quick without one."""
    monkeypatch.setattr("fastio.loader.producer.device_decode.decoder_on", lambda device, threads: FakeGpu())
    monkeypatch.setitem(MODELS, "resnet50", replace(MODELS["resnet50"], build=pooled))


def run(out: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    """The JSON of a tiny run without a GPU."""
    words = ["--device", "cpu", "--tiny", "--out", out, *arguments]
    done = CliRunner().invoke(gpu.main, [str(word) for word in words])
    assert code == done.exit_code, done.output
    return dict(json.loads(out.read_text()))


def test_all_figures(tmp_path: Path) -> None:
    """One command gives all five figures, as a table and as JSON."""
    result = run(tmp_path / "gpu.json")

    assert set(gpu.FIGURES) <= result.keys()
    assert result["decoding"]["levels_apart"]["mean"] < 1
    assert 0 < result["resnet50"]["of_limit"]
    assert 0 <= result["loader"]["waiting_share"] < 1
    assert all(case["step_ms"] > 0 for case in result["cifar_cnn"]["cases"].values())


def test_a_figure_that_fails_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is lies there, the failed one is named, and is added by another call with the same data."""

    def broken(*_: object) -> dict[str, Any]:
        raise RuntimeError("CUDA error")

    out, folder = tmp_path / "gpu.json", tmp_path / "data"
    with monkeypatch.context() as patched:
        patched.setitem(gpu.FIGURES, "overlap", broken)
        first = run(out, "--folder", folder, code=1)
    assert first["overlap"]["failed"] == "RuntimeError: CUDA error"
    assert first["decoding"]["medians"]
    again = run(out, "--folder", folder, "--only", "overlap", "--only", "resnet50")

    assert again["overlap"]["cases"]
    assert first["decoding"] == again["decoding"]
    assert first["resnet50"] != again["resnet50"]


def test_what_is_measured_lies_within_the_steady_state() -> None:
    """As many steps are under way behind the measured ones as before them, and all are done."""
    taken: list[int] = []

    class Noted(gpu_copies._Step):
        def run(self, batch: Any) -> None:
            taken.append(batch)

    cpu = torch.device("cpu")
    count = gpu_copies.WARM_UP + 10 + gpu_copies.AHEAD
    assert gpu_copies._step_ms(iter(range(count)), Noted(cpu, 1e-6), cpu, 10) > 0
    assert list(range(count)) == [batch for batch in taken if batch is not None]


def test_without_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the GPU's decoder is missing, the result says so in its place."""
    monkeypatch.undo()
    assert "needs a GPU" in decoding(torch.device("cpu"), tmp_path, gpu.TINY)["left_out"]
