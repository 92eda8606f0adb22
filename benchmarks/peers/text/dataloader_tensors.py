"""
A list of tensors in memory, ``pad_sequence``, a torch DataLoader: what most scripts begin with.

``variant``: "plain" (no workers, which is its fast way here), "workers", or "groups" (no workers, batches of similar
length).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.peers.sequences import LengthGroups, pad
from benchmarks.peers.work import Work

__all__ = ["loader"]


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    tokens, offsets = np.load(work.source / "tokens.npy"), np.load(work.source / "offsets.npy")
    lengths = np.diff(offsets)
    samples: Any = torch.from_numpy(tokens.astype(np.int64)).split(lengths.tolist())
    if work.variant == "groups":
        return DataLoader(samples, batch_sampler=LengthGroups(lengths, work.batch_size), collate_fn=pad)
    workers = work.workers if work.variant == "workers" else 0
    return DataLoader(
        samples, work.batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0, collate_fn=pad
    )
