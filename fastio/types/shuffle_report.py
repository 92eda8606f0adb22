"""ShuffleReport: the order that ``shuffle=True`` means for a store, and its price."""

from __future__ import annotations

from dataclasses import dataclass

from fastio.types.units import counted, size

__all__ = ["ShuffleReport"]

_REASONS = {
    "badly mixed": ", because blocks mix these labels badly",
    "little memory": ", because there is too little memory for blocks",
    "small samples": ", because a plan of blocks would take more memory than the samples",
    "as in the state": ", as in the loaded state",
}


@dataclass(frozen=True, slots=True)
class ShuffleReport:
    """
    What ``shuffle=True`` means for a store, and what it costs; ``str`` gives one line.

    * ``kind``: "full", "lanes", or "blocks" (from the state of an older fastio). ``reason``: "memory" (it holds the
      store), "well mixed", "badly mixed", "no labels", "little memory", "small samples" or "as in the state".
    * ``store_bytes``: bytes of the samples; ``memory_bytes``: what the page cache is expected to hold.
    * ``mixing``: distinct classes in a batch, relative to a full shuffle, which has 1.0; ``drift``: how far a class's
      share deviates from the mean within an epoch, 0 to 1. None if nothing was judged.
    * ``reads``: contiguous pieces that all ranks together read per epoch if nothing is in memory; ``read_ratio``:
      their bytes, relative to those of the samples. ``lanes`` and ``block_bytes`` are 0 without lanes.
    """

    kind: str
    reason: str
    memory_bytes: int
    store_bytes: int
    lanes: int
    block_bytes: int
    mixing: float | None
    drift: float | None
    reads: int
    read_ratio: float

    def __str__(self) -> str:
        held, memory = size(self.store_bytes), size(self.memory_bytes)
        if self.reason == "memory":
            return f"shuffle=True: a full shuffle ({held} fit into memory, {memory})"
        kind = "a full shuffle" if self.kind == "full" else "blocks, as in older versions"
        if self.kind == "lanes":
            kind = f"{self.lanes} lanes of {size(self.block_bytes)} blocks"
        line = (
            f"{kind}{_REASONS.get(self.reason, '')} ({held}, memory for {memory}); an epoch reads "
            f"{self.read_ratio:.2f} times the samples' bytes in {counted(self.reads, 'piece')}"
        )
        if self.reason == "badly mixed":
            line += "; pack with --shuffle SEED for larger blocks"
        if self.kind == "lanes" and self.mixing is not None:
            line += f"; a batch has {self.mixing:.2f} times the distinct classes of a full shuffle"
        return f"shuffle=True: {line}"
