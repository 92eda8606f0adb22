"""Floating point operations from shapes: as torch counts them, and what it leaves out by the sizes themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from fastio.measure.trace.trace import OperatorTime, read_trace

CASES: list[tuple[str, str, Callable[[], object]]] = [
    ("aten::mm", "aten::mm", lambda: torch.ones(3, 4) @ torch.ones(4, 5)),
    ("aten::bmm", "aten::bmm", lambda: torch.ones(2, 3, 4) @ torch.ones(2, 4, 5)),
    ("aten::addmm", "aten::addmm", lambda: nn.functional.linear(torch.ones(3, 4), torch.ones(5, 4), torch.ones(5))),
    ("aten::baddbmm", "aten::baddbmm", lambda: torch.baddbmm(torch.ones(2, 3, 5), *_pair())),
    ("aten::convolution", "aten::conv2d", lambda: _convolved(2, 1, 2, 1)),
    ("aten::convolution", "aten::conv2d", lambda: _convolved(1, 0, 1, 2)),
]


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(2, 3, 4), torch.ones(2, 4, 5)


def _convolved(stride: int, padding: int, dilation: int, groups: int) -> torch.Tensor:
    weights = torch.ones(6, 4 // groups, 3, 5)
    return nn.functional.conv2d(torch.ones(2, 4, 17, 18), weights, None, stride, padding, dilation, groups)


def recorded(work: Callable[[], object], path: Path) -> tuple[dict[str, OperatorTime], dict[str, int]]:
    """The operators of a trace, and torch's own counts by name."""
    recorder = profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True)
    with recorder, record_function("ProfilerStep#1"):
        work()
    recorder.export_chrome_trace(str(path))
    theirs = {each.key: each.flops for each in recorder.key_averages()}
    return {each.name: each for each in read_trace(path).operators}, theirs


@pytest.mark.parametrize(("ours", "theirs", "work"), CASES)
def test_as_torch_counts(ours: str, theirs: str, work: Callable[[], object], tmp_path: Path) -> None:
    """The same number as with_flops, which knows these."""
    found, counts = recorded(work, tmp_path / "t.json")

    assert found[ours].flops == counts[theirs] > 0


def test_what_torch_leaves_out(tmp_path: Path) -> None:
    """Each gradient of a convolution takes what going forward took; a transposed one counts its inputs' places."""
    images = torch.ones(2, 4, 9, 9, requires_grad=True)
    weights = torch.ones(6, 4, 3, 3, requires_grad=True)
    forward = 2 * 2 * 49 * 6 * 4 * 9

    found, _ = recorded(lambda: nn.functional.conv2d(images, weights).sum().backward(), tmp_path / "a.json")
    assert (found["aten::convolution"].flops, found["aten::convolution_backward"].flops) == (forward, 2 * forward)
    found, _ = recorded(lambda: nn.functional.conv2d(images.detach(), weights).sum().backward(), tmp_path / "b.json")
    assert found["aten::convolution_backward"].flops == forward
    found, _ = recorded(lambda: nn.functional.conv_transpose2d(images, torch.ones(4, 6, 3, 3)), tmp_path / "c.json")
    assert found["aten::convolution"].flops == 2 * 2 * 81 * 4 * 6 * 9


def test_others_have_none(tmp_path: Path) -> None:
    """Operators without a formula, and traces without shapes."""
    found, _ = recorded(lambda: torch.ones(3).exp(), tmp_path / "t.json")
    assert found["aten::exp"].flops is None
