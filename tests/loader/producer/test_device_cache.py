"""How much a device has left for a cache."""

from __future__ import annotations

import pytest
import torch

from fastio.loader.producer.device_cache import _free_on


def test_what_torch_keeps_of_dead_tensors_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second cache may lie where the first one was, though the driver does not have that memory back."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000, 50_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 40_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 500)

    assert 1_000 + 39_500 == _free_on(torch.device("cuda", 1))
