"""RollingShards: a writer whose batches go into one shard after the other, each sealed alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fastio.store import SampleBatch, SampleWriter

__all__ = ["RollingShards", "WrittenShard"]


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A finished shard: its name in the folder of the set, and its samples."""

    name: str
    count: int


class RollingShards:
    """
    Writes batches into shards of about ``shard_bytes``; see ``SampleWriter`` for the contract.

    A shard ends with the batch that fills it. ``begin(piece)`` returns the name and the writer of shard ``piece``, from
    0. ``close(metadata)`` ends the last shard; earlier ones have ``metadata`` of their own, see ``metadata_now``.
    """

    def __init__(
        self,
        begin: Callable[[int], tuple[str, SampleWriter]],
        *,
        shard_bytes: int,
        metadata_now: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.written: list[WrittenShard] = []
        self._begin = begin
        self._shard_bytes = shard_bytes
        self._metadata_now = metadata_now
        self._name = ""
        self._writer: SampleWriter | None = None
        self._count = self._size_bytes = 0

    def append(self, batch: SampleBatch) -> None:
        """See SampleWriter."""
        if self._writer is None:
            self._name, self._writer = self._begin(len(self.written))
        self._writer.append(batch)
        self._count += len(batch.keys)
        self._size_bytes += sum(int(spans.sizes.sum()) for spans in batch.spans.values())
        if self._size_bytes >= self._shard_bytes:
            self._end()

    def close(self, metadata: Mapping[str, Any] | None = None) -> None:
        """End the last shard; does nothing if there is none."""
        if self._writer is not None:
            self._end(metadata)

    def abort(self) -> None:
        """Give up the shard that is not finished; the others stay."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def _end(self, metadata: Mapping[str, Any] | None = None) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None
        writer.close(self._metadata_now() if metadata is None else metadata)
        self.written.append(WrittenShard(self._name, self._count))
        self._count = self._size_bytes = 0
