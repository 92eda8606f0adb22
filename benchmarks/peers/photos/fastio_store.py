"""fastio itself, measured as its peers are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.peers.work import Work
from fastio import FastDataset, FastLoader
from fastio.converters import open_source
from fastio.converters import pack as pack_store
from fastio.transforms import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform

__all__ = ["loader", "pack"]

TRANSFORMS: dict[str, list[Transform]] = {
    "random_224": [RandomResizedCrop(224), RandomHorizontalFlip()],
    "center_224": [Resize(256), CenterCrop(224)],
}


def pack(work: Work) -> None:
    """One LMDB file."""
    pack_store(open_source(work.source, labels=work.labels), work.packed / "train.lmdb")


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return FastLoader(
        FastDataset(work.packed / "train.lmdb"),
        work.batch_size,
        shuffle=work.task == "random_224",
        threads=work.workers,
        transforms=TRANSFORMS[work.task],
    )
