"""What a peer is asked to do: epochs of photos, or of rows of token ids, that lie behind a URL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

__all__ = ["BATCH_SIZE", "ROW_IDS", "Peer", "RemoteWork", "RowPeer", "joined"]

BATCH_SIZE = 128
ROW_IDS = 64  # uint16 each; the first two of a row say which it is


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """
    The same for all peers.

    ``source`` is a flat folder of JPEGs, which the peer packs in the order of their names; the number of a photo, which
    every sample carries, is its position. ``packed`` is the peer's own folder, ``url`` the same behind the server, or
    "" to read from the disk. ``scratch`` is an empty folder for what the peer keeps while it reads. ``cache_bytes``: 0
    for none.

    With ``shards``, ``source`` is a .npy of rows instead, to be packed in so many files where the format has some;
    ``full`` shuffles over all of them at once where there is a choice. ``readers`` take a batch each, one after the
    other; ``reader`` is the one whose turn it is.
    """

    source: Path
    packed: Path
    samples: int
    workers: int
    url: str = ""
    scratch: Path = Path()
    cache_bytes: int = 0
    epochs: int = 1
    shards: int = 0
    full: bool = False
    readers: int = 0
    reader: int = 0

    @property
    def row_batch(self) -> int:
        """Rows in a batch."""
        return 32 if self.readers else 256

    @property
    def shard_rows(self) -> int:
        """Rows in a shard."""
        return -(-self.samples // self.shards)

    def row_shards(self) -> Iterable[Any]:
        """The rows of each shard: (N, 64) uint16."""
        rows = np.load(self.source, mmap_mode="r")
        return (rows[start : start + self.shard_rows] for start in range(0, self.samples, self.shard_rows))

    def reading(self, url: str, scratch: Path, *, cache_bytes: int, epochs: int) -> Self:
        """The same, with what a run adds."""
        return replace(self, url=url, scratch=scratch, cache_bytes=cache_bytes, epochs=epochs)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the reverse of ``to_json``."""
        paths = {name: Path(values[name]) for name in ("source", "packed", "scratch")}
        return cls(**{**values, **paths})


class Peer(Protocol):
    """The functions of a peer's file."""

    def pack(self, work: RemoteWork) -> None:
        """Write the peer's own format into ``work.packed``."""

    def loader(self, work: RemoteWork) -> Iterable[Any]:
        """Return batches of (B, 3, 224, 224) uint8 and numbers, shuffled, one epoch an iteration."""


class RowPeer(Protocol):
    """The functions of a peer's file for rows."""

    def pack_rows(self, work: RemoteWork) -> None:
        """Write the rows of ``work.source`` into ``work.packed``, in the peer's own format."""

    def rows(self, work: RemoteWork) -> Iterable[Any]:
        """Return shuffled batches of (B, 64) ids for an epoch, or for ``work.reader``, which then has no workers."""


def joined(rows: Iterable[bytes]) -> Any:
    """A batch of rows as (B, 64) uint16."""
    return np.frombuffer(b"".join(rows), np.uint16).reshape(-1, ROW_IDS)
