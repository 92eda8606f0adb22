"""One file per photo, Pillow (or Pillow-SIMD in its place), a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.peers import files_pil
from benchmarks.peers.work import Work

__all__ = ["loader"]


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return files_pil.loader(
        work.source,
        work.labels,
        batch_size=work.batch_size,
        workers=work.workers,
        transform=getattr(files_pil, work.task),
        shuffle=work.task == "random_224",
    )
