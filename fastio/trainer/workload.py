"""Workload: a network, its task, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fastio.transforms.batch.batch_transform import BatchTransform

__all__ = ["Task", "Workload"]


class Task(Protocol):
    """
    What a network's batch is, and what it learns from it.

    ``shape`` is that of one sample, ``outputs`` the number of classes or of token ids.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> int: ...

    def prepared(self, batch: Any, layout: torch.memory_format) -> Any:
        """Return a loader's batch as ``loss`` takes it; unchanged if it already is."""
        ...

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """Return the mean loss of a batch, a tensor without dimensions."""
        ...

    def random_batch(self, batch_size: int, generator: torch.Generator) -> Any:
        """Return random numbers in the form of a loader's batch."""
        ...

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """Return what ``prepared`` does as transforms, for code that brings batches to the device ahead of the step."""
        ...

    def check(self, batch: Any, where: str) -> None:
        """Raise FastioError, naming the source ``where``, if nothing can be learned from such batches."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """
    A network and how it is trained.

    ``build`` makes it, for so many outputs; ``optimizer`` takes its parameters; ``batch_size`` is the usual one.
    """

    name: str
    task: Task
    batch_size: int
    build: Callable[[int], torch.nn.Module]
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
