"""What a peer is asked to do: epochs of photos, or of small samples (rows of ids, small pictures), behind a URL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

__all__ = ["BATCH_SIZE", "ROW_IDS", "SIDE", "Peer", "RemoteWork", "RowPeer"]

BATCH_SIZE = 128
ROW_IDS = 64  # uint16 each; the first two of a row say which it is
SIDE = 32  # of a small picture, whose first four bytes in RGB say which it is


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """
    The same for all peers.

    ``source`` is a flat folder of JPEGs, which the peer packs in the order of their names; the number of a photo, which
    every sample carries, is its position. ``packed`` is the peer's own folder, ``url`` the same behind the server, or
    "" to read from the disk. ``container`` is that of fastio's stores, by the ending of their names. ``scratch`` is an
    empty folder for what the peer keeps while it reads. ``cache_bytes``: 0 for none.

    With ``shards``, ``source`` is a .npy of rows instead, or with ``pictures`` of where each PNG begins in the .bin
    beside it and of their end; to be packed in so many files where the format has some. ``full`` shuffles over all of
    them at once where there is a choice. ``readers`` take a batch each, one after the other; ``reader`` is the one
    whose turn it is.
    """

    source: Path
    packed: Path
    samples: int
    workers: int
    container: str = "tar"
    url: str = ""
    scratch: Path = Path()
    cache_bytes: int = 0
    epochs: int = 1
    shards: int = 0
    pictures: bool = False
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

    def values(self, shard: int) -> Iterator[bytes]:
        """The rows or PNGs of a shard."""
        source = np.load(self.source, mmap_mode="r")
        samples = range(shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.samples))
        if not self.pictures:
            return (source[sample].tobytes() for sample in samples)
        data = np.memmap(self.source.with_suffix(".bin"), np.uint8, "r")
        return (data[source[sample] : source[sample + 1]].tobytes() for sample in samples)

    def all_values(self) -> Iterator[bytes]:
        """Those of all shards."""
        return chain.from_iterable(map(self.values, range(self.shards)))

    def batch(self, values: Iterable[bytes]) -> Any:
        """Rows as (B, 64) uint16; PNGs, decoded by OpenCV, as (B, 32, 32, 3) uint8."""
        if not self.pictures:
            return np.frombuffer(b"".join(values), np.uint16).reshape(-1, ROW_IDS)
        from benchmarks.peers.opencv import decoded

        return np.stack([decoded(value) for value in values])

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
        """Write ``work.all_values()`` into ``work.packed``, in the peer's own format."""

    def rows(self, work: RemoteWork) -> Iterable[Any]:
        """Return shuffled batches for an epoch, or for ``work.reader``, which then has no workers."""
