"""What every peer is asked to do, and what a file in ``photos/`` must offer."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["MEAN", "STD", "Peer", "Work", "from_json", "names_and_numbers", "to_json"]

# What Normalize is told for ImageNet, of values between 0 and 1.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Work:
    """
    One peer's task, the same for all.

    ``source`` is a flat folder of JPEGs. The number of a sample in ``labels``, a pickle of ``{file name: number}``, is
    its position among the sorted names, so that each run can be checked for giving every sample once. ``packed`` is a
    folder of the peer's own. ``task`` is "random_224", "center_224" or "floats_224" (random crops through ToTensor and
    Normalize).
    """

    source: Path
    labels: Path
    packed: Path
    variant: str
    task: str
    batch_size: int
    workers: int

    @property
    def is_random(self) -> bool:
        """Whether the photos come in random order, each with a random crop."""
        return self.task in ("random_224", "floats_224")


class Peer(Protocol):
    """The functions of a peer's file; one that reads the source as it is has no ``pack``."""

    def pack(self, work: Work) -> None:
        """Write the peer's own format into ``work.packed``."""

    def loader(self, work: Work) -> Iterable[Any]:
        """
        Batches, one epoch an iteration: images and numbers.

        Images are uint8 of shape (B, 3, 224, 224) in any memory layout, or float32 for "floats_224".
        """


def names_and_numbers(work: Work) -> dict[str, int]:
    """File name -> number, sorted by name."""
    return dict(sorted(pickle.loads(work.labels.read_bytes()).items()))


def to_json(work: Work) -> dict[str, Any]:
    """``work`` as JSON has it."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(work).items()}


def from_json(values: dict[str, Any]) -> Work:
    """The reverse of ``to_json``."""
    paths = {name: Path(values[name]) for name in ("source", "labels", "packed")}
    return Work(**{**values, **paths})
