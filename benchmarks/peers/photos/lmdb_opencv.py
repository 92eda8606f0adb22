"""The plain LMDB script with OpenCV as its decoder, in a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.peers import opencv, plain_lmdb
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """One environment in one file."""
    plain_lmdb.pack(work.source, work.labels, work.packed / "train.lmdb")


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return plain_lmdb.loader(
        work.packed / "train.lmdb",
        batch_size=work.batch_size,
        workers=work.workers,
        decode=opencv.transform(work.task),
        shuffle=work.is_random,
    )
