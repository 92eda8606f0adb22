"""What the peers for text share: the sequences of the source, padding, batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from benchmarks.peers.work import Work

__all__ = ["LengthGroups", "pad", "sequences"]


def sequences(work: Work) -> Iterator[NDArray[np.uint16]]:
    """All sequences, in order."""
    tokens, offsets = np.load(work.source / "tokens.npy"), np.load(work.source / "offsets.npy")
    for start, stop in pairwise(offsets.tolist()):
        yield tokens[start:stop]


def pad(samples: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids as int64, padded with 0 to the longest, and the lengths: what a collate function of most scripts does."""
    tensors = [torch.as_tensor(sample) for sample in samples]
    ids = pad_sequence(tensors, batch_first=True)
    return ids.to(torch.int64), torch.tensor([len(tensor) for tensor in tensors])


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
