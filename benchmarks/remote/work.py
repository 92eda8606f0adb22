"""What a peer is asked to do: one or more epochs of photos that lie behind a URL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

__all__ = ["BATCH_SIZE", "Peer", "RemoteWork"]

BATCH_SIZE = 128


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """
    The same for all peers.

    ``photos`` is a flat folder of JPEGs, which the peer packs in the order of their names; the number of a photo, which
    every sample carries, is its position. ``packed`` is the peer's own folder, ``url`` the same behind the server, or
    "" to read from the disk. ``scratch`` is an empty folder for what the peer keeps while it reads. ``cache_bytes``: 0
    for none.
    """

    photos: Path
    packed: Path
    samples: int
    workers: int
    url: str = ""
    scratch: Path = Path()
    cache_bytes: int = 0
    epochs: int = 1

    def reading(self, url: str, scratch: Path, *, cache_bytes: int, epochs: int) -> Self:
        """The same, with what a run adds."""
        return replace(self, url=url, scratch=scratch, cache_bytes=cache_bytes, epochs=epochs)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the reverse of ``to_json``."""
        paths = {name: Path(values[name]) for name in ("photos", "packed", "scratch")}
        return cls(**{**values, **paths})


class Peer(Protocol):
    """The functions of a peer's file."""

    def pack(self, work: RemoteWork) -> None:
        """Write the peer's own format into ``work.packed``."""

    def loader(self, work: RemoteWork) -> Iterable[Any]:
        """Return batches of (B, 3, 224, 224) uint8 and numbers, shuffled, one epoch an iteration."""
