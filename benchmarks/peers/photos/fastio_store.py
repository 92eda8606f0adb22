"""
fastio itself, measured as its peers are; ``variant``: an option of ``fastio pack`` for photos, none, or "in-place" for
the files where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.peers.work import MEAN, STD, Work
from fastio import FastDataset, FastLoader, Unpacked
from fastio.converters import Transcode, open_source
from fastio.converters import pack as pack_store
from fastio.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform

__all__ = ["dataset", "loader", "pack"]

TRANSFORMS: dict[str, list[Transform]] = {
    "random_224": [RandomResizedCrop(224), RandomHorizontalFlip()],
    "center_224": [Resize(256), CenterCrop(224)],
    "floats_224": [RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(MEAN, STD)],
}
PICTURES = {"restart": Transcode(restart=8), "short": Transcode(short_side=256)}


def pack(work: Work) -> None:
    """One LMDB file, or nothing: the first opening lists the files."""
    if work.variant == "in-place":
        return
    source = open_source(work.source, labels=work.labels)
    jump = work.variant != "no-jump"
    pack_store(source, work.packed / "train.lmdb", pictures=PICTURES.get(work.variant), jump=jump)


def dataset(work: Work, transform: Callable[[Any], Any] | None = None) -> FastDataset:
    """The store, or the files in place."""
    if work.variant == "in-place":
        return FastDataset(work.source, transform, unpacked=Unpacked(work.labels))
    return FastDataset(work.packed / "train.lmdb", transform)


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return FastLoader(
        dataset(work),
        work.batch_size,
        shuffle=work.is_random,
        threads=work.workers,
        transforms=TRANSFORMS[work.task],
    )
