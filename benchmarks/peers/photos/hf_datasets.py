"""Hugging Face datasets: Arrow files of encoded photos, OpenCV in ``with_transform``, a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import datasets
import torch
from torch.utils.data import DataLoader

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """A dataset on disk, memory mapped when it is read."""
    numbers = names_and_numbers(work)

    def samples() -> Iterable[dict[str, Any]]:
        for name, number in numbers.items():
            yield {"image": (work.source / name).read_bytes(), "number": number}

    features = datasets.Features({"image": datasets.Value("binary"), "number": datasets.Value("int64")})
    cache = work.packed.with_name(f"{work.packed.name}-cache")
    made = datasets.Dataset.from_generator(samples, features=features, cache_dir=str(cache))
    made.save_to_disk(str(work.packed))


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    decode = opencv.transform(work.task)

    def transform(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"image": [torch.from_numpy(decode(data)) for data in rows["image"]], "number": rows["number"]}

    return DataLoader(
        datasets.load_from_disk(str(work.packed)).with_transform(transform),
        work.batch_size,
        shuffle=work.is_random,
        num_workers=work.workers,
        persistent_workers=True,
        collate_fn=lambda rows: channels_first([(row["image"], row["number"]) for row in rows]),
    )
