"""Workload: a network, what it learns from, and how: what a yardstick of training consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fastio.transforms.batch.batch_transform import BatchTransform

__all__ = ["Task", "Workload"]


class Task(Protocol):
    """
    What a batch is to a network, and what is to be learned from it.

    ``shape`` is that of one sample, ``outputs`` the number of classes, or of token ids.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> int: ...

    def prepared(self, batch: Any, layout: torch.memory_format) -> Any:
        """A loader's batch as ``loss`` takes it; one that is so already as it is."""
        ...

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """The mean loss of a batch, a tensor without dimensions."""
        ...

    def random_batch(self, batch_size: int, generator: torch.Generator) -> Any:
        """Random numbers in the form of a batch, as a loader would give it."""
        ...

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """What ``prepared`` does, for whoever brings batches to the device ahead of the step."""
        ...

    def check(self, batch: Any, where: str) -> None:
        """FastioError, naming ``where`` the batch comes from, if nothing can be learned from such batches."""
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
