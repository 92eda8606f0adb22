"""One file per photo, Pillow (or Pillow-SIMD in its place), a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import default_collate

from benchmarks.peers import files_pil
from benchmarks.peers.collate import channels_first
from benchmarks.peers.work import Work

__all__ = ["loader"]

TRANSFORMS = {
    "random_224": files_pil.random_224,
    "center_224": files_pil.center_224,
    "floats_224": files_pil.random_floats,
}


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return files_pil.loader(
        work.source,
        work.labels,
        batch_size=work.batch_size,
        workers=work.workers,
        transform=TRANSFORMS[work.task],
        shuffle=work.is_random,
        collate=default_collate if work.task == "floats_224" else channels_first,
    )
