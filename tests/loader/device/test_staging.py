"""Pinned memory that batches are copied through."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch

from fastio.loader.device.lane import HostLane
from fastio.loader.device.staging import Staging


@pytest.mark.parametrize("before", [[], [1]], ids=["the first memory", "larger memory"])
def test_memory_taken_in_inference_mode_is_filled_outside_of_it(before: list[int]) -> None:
    """A tensor made in inference mode could not be: an evaluation would break the training that follows it."""
    staging = Staging(HostLane(), 1)
    for count in before:
        with staging.take([torch.zeros(count)]):
            pass
    with torch.inference_mode(), staging.take([torch.ones(1000)]) as staged:
        assert [[1] * 1000] == [copy.tolist() for copy in staged.copies]
    with staging.take([torch.full((1000,), 2.0)]) as staged:
        assert not any(copy.is_inference() for copy in staged.copies)
        assert [[2] * 1000] == [copy.tolist() for copy in staged.copies]


def test_another_thread_takes_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that see one free piece of memory get one each."""

    class Taken(deque[Any]):
        def __bool__(self) -> bool:
            return True

    staging = Staging(HostLane(), 0)
    monkeypatch.setattr(staging, "_free", Taken())

    with staging.take([torch.ones(3)]) as staged:
        assert [[1] * 3] == [copy.tolist() for copy in staged.copies]
