"""A list of tensors in memory, ``pad_sequence``, a torch DataLoader: what most scripts begin with."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.text.loaders.padding import LengthGroups, pad
from benchmarks.text.work import TRAININGS, Epochs, Work, read_texts

__all__ = ["LOADERS"]


def _padded(work: Work, *, by_length: bool) -> Epochs:
    texts, size = read_texts(work.source / "sequences"), TRAININGS["padded"].batch_size
    samples = torch.from_numpy(texts.ids.astype(np.int64)).split(texts.lengths.tolist())
    order = {"batch_sampler": LengthGroups(texts.lengths, size)} if by_length else {"batch_size": size, "shuffle": True}
    workers = {"num_workers": work.workers, "persistent_workers": work.workers > 0}
    loader = DataLoader(samples, **order, **workers, collate_fn=pad)  # type: ignore[arg-type]
    return Epochs(lambda: loader)


LOADERS = {
    "DataLoader": {"padded": partial(_padded, by_length=False)},
    "DataLoader, by length": {"padded": partial(_padded, by_length=True)},
}
