"""Hugging Face datasets: lists of ids in Arrow files, ``group_by_length``'s batches, a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import datasets
import numpy as np
from torch.utils.data import DataLoader

from benchmarks.peers.sequences import LengthGroups, pad, sequences
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """A dataset on disk, memory mapped when it is read."""
    features = datasets.Features({"input_ids": datasets.Sequence(datasets.Value("uint16"))})
    cache = work.packed.with_name(f"{work.packed.name}-cache")
    made = datasets.Dataset.from_generator(
        lambda: ({"input_ids": ids} for ids in sequences(work)), features=features, cache_dir=str(cache)
    )
    made.save_to_disk(str(work.packed))


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    lengths = np.diff(np.load(work.source / "offsets.npy"))
    return DataLoader(
        datasets.load_from_disk(str(work.packed)).with_format("numpy"),
        batch_sampler=LengthGroups(lengths, work.batch_size),
        num_workers=work.workers,
        persistent_workers=True,
        collate_fn=lambda rows: pad([row["input_ids"].astype(np.int64) for row in rows]),
    )
