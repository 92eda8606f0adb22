"""FastSubset: some samples of a FastDataset as torch's Subset, with keys, labels and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from fastio.dataset.fast_dataset import FastDataset

__all__ = ["FastSubset"]


class FastSubset(Subset[Any]):
    """``loader.dataset`` of a ``FastLoader(..., indices=...)``: sample i is ``dataset[indices[i]]``."""

    dataset: FastDataset

    def __init__(self, dataset: FastDataset, indices: NDArray[np.int64]) -> None:
        super().__init__(dataset, indices.tolist())
        self._chosen = indices

    @property
    def keys(self) -> list[str]:
        """Each sample's path in its source."""
        return self.dataset.store.keys(self._chosen)

    @property
    def labels(self) -> NDArray[Any] | None:
        """The label of each sample, as FastDataset's."""
        labels = self.dataset.labels
        return None if labels is None else labels[self._chosen]

    @property
    def targets(self) -> list[Any]:
        """The label of each sample as a list of Python numbers."""
        return [] if self.labels is None else list(self.labels.tolist())

    @property
    def classes(self) -> list[str]:
        """All classes of the dataset, whether the subset has samples of them or not."""
        return self.dataset.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class name."""
        return self.dataset.class_to_idx

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of the store, one value per sample; "length" as in FastDataset."""
        return self.dataset.column(name)[self._chosen]

    def __repr__(self) -> str:
        return f"FastSubset({self.dataset.store.path!r}): {len(self)} of {len(self.dataset)} samples"
