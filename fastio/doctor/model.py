"""Finds out what a training trains, from its optimizer and torch, without changing it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

import torch

from fastio.doctor.facts import ModelFacts

__all__ = ["ModelWatch"]


class ModelWatch:
    """As a context, records whether autocast is used; ``look_at`` an optimizer records its parameters."""

    def __init__(self) -> None:
        self._parameters: list[torch.Tensor] | None = None
        self._is_autocast = False
        self._patches = ExitStack()

    def __enter__(self) -> ModelWatch:
        # Called at the end of every autocast region. The class itself stays unpatched: torch.compile looks at it.
        original: Any = torch.clear_autocast_cache
        self._patches.callback(setattr, torch, "clear_autocast_cache", original)

        def clear() -> None:
            # The state is still that of the region: enabled=False is a region too.
            self._is_autocast |= torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
            original()

        torch.clear_autocast_cache = clear
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        self._parameters = None

    def look_at(self, optimizer: Any) -> None:
        """Record the optimizer's parameters, the first time."""
        if self._parameters is None:
            self._parameters = [part for group in optimizer.param_groups for part in group["params"]]

    @property
    def facts(self) -> ModelFacts | None:
        """The facts, or None if no optimizer has run. The dtype is that of most parameters."""
        if not self._parameters:
            return None
        kernels = [part for part in self._parameters if part.dim() == 4 and max(part.shape[2:]) > 1]
        sizes: dict[str, int] = {}
        for part in self._parameters:
            name = str(part.dtype).removeprefix("torch.")
            sizes[name] = sizes.get(name, 0) + part.numel()
        return ModelFacts(
            device=str(self._parameters[0].device),
            dtype=max(sizes, key=lambda name: sizes[name]),
            has_convolutions=bool(kernels),
            is_channels_last=bool(kernels)
            and all(part.is_contiguous(memory_format=torch.channels_last) for part in kernels),
            is_autocast=self._is_autocast,
            is_compiled=_is_compiled(),
        )


def _is_compiled() -> bool:
    """Return whether torch.compile has compiled anything in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
