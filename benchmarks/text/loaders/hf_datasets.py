"""Hugging Face datasets: lists of ids in Arrow files, ``group_by_length``'s batches, a torch DataLoader."""

from __future__ import annotations

import datasets
import numpy as np
from torch.utils.data import DataLoader

from benchmarks.text.loaders.padding import LengthGroups, pad
from benchmarks.text.work import TRAININGS, Epochs, Work, read_texts

__all__ = ["LOADERS", "PACKS"]


def _pack(work: Work) -> None:
    """A dataset on disk, memory mapped when it is read."""
    features = datasets.Features({"input_ids": datasets.Sequence(datasets.Value("uint16"))})
    cache = work.packed.with_name(f"{work.packed.name}-cache")
    texts = read_texts(work.source / "sequences")
    made = datasets.Dataset.from_generator(
        lambda: ({"input_ids": ids} for ids in texts), features=features, cache_dir=str(cache)
    )
    made.save_to_disk(str(work.packed))


def _padded(work: Work) -> Epochs:
    lengths = read_texts(work.source / "sequences").lengths
    loader = DataLoader(
        datasets.load_from_disk(str(work.packed)).with_format("numpy"),
        batch_sampler=LengthGroups(lengths, TRAININGS["padded"].batch_size),
        num_workers=work.workers,
        persistent_workers=work.workers > 0,
        collate_fn=lambda rows: pad([row["input_ids"].astype(np.int64) for row in rows]),
    )
    return Epochs(lambda: loader)


LOADERS = {"Hugging Face, by length": {"padded": _padded}}
PACKS = {"padded": _pack}
