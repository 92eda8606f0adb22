"""BatchRoles: which entries of a batch are its pictures and its label, for the transforms of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["BatchRoles"]


@dataclass(frozen=True, slots=True)
class BatchRoles:
    """
    The keys of a dict, or positions in a tuple, of all pictures, and of the label (None: there is none).

    Transforms of batches change these and nothing else.
    """

    pictures: tuple[str | int, ...]
    label: str | int | None

    def groups(self, batch: Any, parts: Sequence[torch.Tensor]) -> list[list[int]]:
        """
        Return for each picture its position among ``parts``, the tensors of the batch, and then that of the label.
        """
        positions = {id(part): position for position, part in enumerate(parts)}
        label = [] if self.label is None else [positions[id(batch[self.label])]]
        return [[positions[id(batch[key])], *label] for key in self.pictures]
