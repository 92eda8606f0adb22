"""What the loaders of padded sequences share: padding, batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from benchmarks.text.work import Batch

__all__ = ["LengthGroups", "pad"]


def pad(samples: Sequence[Any]) -> Batch:
    """Ids as int64, padded with 0 to the longest, and the lengths: what a collate function of most scripts does."""
    tensors = [torch.as_tensor(sample) for sample in samples]
    ids = pad_sequence(tensors, batch_first=True)
    lengths = torch.tensor([len(tensor) for tensor in tensors])
    return {"input_ids": ids.to(torch.int64), "lengths": lengths}, len(tensors)


class LengthGroups:
    """
    Batches of indices by the rule of ``group_by_length``: 50 batches of random samples are sorted by length, then cut.

    For the ``batch_sampler`` of a DataLoader.
    """

    def __init__(self, lengths: NDArray[np.int64], batch_size: int) -> None:
        self.lengths, self.batch_size = lengths, batch_size
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return (len(self.lengths) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        order = self.rng.permutation(len(self.lengths))
        window = 50 * self.batch_size
        for start in range(0, len(order), window):
            group = order[start : start + window]
            group = group[np.argsort(-self.lengths[group], kind="stable")].tolist()
            for first in range(0, len(group), self.batch_size):
                yield group[first : first + self.batch_size]
