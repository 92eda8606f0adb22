"""The order of an epoch, and its division among ranks and batches: pure functions of a few numbers.

    order    = full_order(count, seed=..., epoch=...)                      the same on all ranks
    division = Division(count, batch_size, world_size=..., uneven=...)
    mine     = division.share(order, rank)                                 batch k is mine[k*B:(k+1)*B]

An order that holds a number for each sample takes 8 bytes a sample on every rank. For many samples, none is held:
``keyed_order`` computes the samples at any places, ``division.places(rank, start, stop)`` says which places these are.

Nothing is drawn from a generator with a state: any batch of any epoch can be computed again, after a resume, on
another machine, or by another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.position import whole

__all__ = [
    "MOST_HELD",
    "Division",
    "Shuffle",
    "Uneven",
    "block_order",
    "consumed_after",
    "full_order",
    "keyed_order",
]

Shuffle = bool | Literal["full"]
Uneven = Literal["pad", "drop", "repeat"]

MOST_HELD = 1 << 22  # samples whose order is drawn and held; that of more is computed where it is needed

_BLOCK_BYTES = 4 << 20
_WINDOW_BLOCKS = 8


def full_order(count: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return a permutation of 0..count-1, int64; reads become random."""
    order = np.arange(count, dtype=np.int64)
    _native.shuffle(order, seed, _stream(epoch, 0))
    return order


def keyed_order(places: NDArray[np.int64], count: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """
    Return the samples at these places ``(n,)`` of a permutation of 0..count-1, int64, which is computed and not held.

    A Feistel network with cycle walking, see ``_native.permute``. It is for many samples: over seeds, the orders of a
    handful are not uniform (of 5 samples and 10,000 seeds, chi-square of places is 46 at 16 degrees of freedom); those
    of 12, 16 and 17 are as uniform as drawn ones. Raises IndexError for a place outside 0..count-1.
    """
    samples = np.array(places, np.int64)
    _native.permute(samples, count, seed, _stream(epoch, 0))
    return samples


def block_order(
    sizes: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    block_bytes: int = _BLOCK_BYTES,
    window_blocks: int = _WINDOW_BLOCKS,
) -> NDArray[np.int64]:
    """
    Return blocks of neighbours in random order, shuffled within windows of a few blocks, int64.

    A block is a run of samples of about ``block_bytes``; a window is up to ``window_blocks`` blocks. This was
    ``shuffle=True`` before there were lanes, and is kept for states from that time: if data are sorted by class, a
    window holds only a few classes.
    """
    count = len(sizes)
    if count == 0:
        return np.empty(0, np.int64)
    block = (np.cumsum(sizes, dtype=np.int64) - sizes) // block_bytes
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(block)) + 1))
    lengths = np.diff(np.concatenate((firsts, [count])))

    blocks = np.arange(len(firsts), dtype=np.int64)
    _native.shuffle(blocks, seed, _stream(epoch, 0))
    firsts, lengths = firsts[blocks], lengths[blocks]
    ends = np.cumsum(lengths)
    order = np.repeat(firsts - (ends - lengths), lengths) + np.arange(count, dtype=np.int64)

    # Windows of equal length rather than full ones and a rest: a last window of one block would not be mixed.
    windows = -(-len(blocks) // window_blocks)
    cuts = np.concatenate(([0], ends))[np.arange(windows + 1) * len(blocks) // windows]
    for window in range(windows):
        _native.shuffle(order[cuts[window] : cuts[window + 1]], seed, _stream(epoch, 1 + window))
    return order


def _stream(epoch: int, part: int) -> int:
    """Return the stream number that keeps the random numbers of different epochs and parts of an epoch apart."""
    return (epoch << 32) | part


@dataclass(frozen=True, slots=True)
class Division:
    """
    How what is left of an order is cut into steps, and every step into equal parts for the ranks.

    The first ``start`` of ``count`` samples have been consumed, by any number of ranks in batches of any size. Step s
    takes ``order[start + s*W*B : start + (s+1)*W*B]``, and rank r its r-th part. What remains at the end is less than
    a step; ``uneven`` says what happens to it:

    * ``"pad"``: repeats samples from the start of the order until the ranks' parts are equal (nothing to do if
      ``world_size`` is 1); the last batch may be short
    * ``"drop"``: leaves out as few samples as make the parts equal; the last batch may be short
    * ``"repeat"``: repeats samples until the last batch is full too

    ``drop_last`` then drops a short last batch, as in PyTorch. All ranks always get the same number of batches of the
    same sizes; ``repeated`` and ``dropped`` count what that costs.
    """

    count: int
    batch_size: int
    world_size: int = 1
    uneven: Uneven = "pad"
    drop_last: bool = False
    start: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: expected 1 or more")
        if self.uneven not in get_args(Uneven):
            raise ValueError(f"uneven={self.uneven!r}: expected one of {', '.join(map(repr, get_args(Uneven)))}")

    @property
    def left(self) -> int:
        """The number of samples that have not been consumed."""
        return self.count - self.start

    @property
    def samples(self) -> int:
        """The number of samples that one rank still gets in the epoch."""
        full, rest = divmod(self.left, self.world_size * self.batch_size)
        if self.uneven == "pad":
            last = -(-rest // self.world_size)
        elif self.uneven == "drop":
            last = rest // self.world_size
        else:
            last = self.batch_size if rest else 0
        if self.drop_last and last < self.batch_size:
            last = 0
        return full * self.batch_size + last

    @property
    def full_steps(self) -> int:
        """The number of steps with a full batch for each rank and no repetition."""
        return self.left // (self.world_size * self.batch_size)

    @property
    def batches(self) -> int:
        """The number of batches that one rank still gets in the epoch."""
        return -(-self.samples // self.batch_size)

    @property
    def repeated(self) -> int:
        """The number of samples that come once more than they should, over all ranks."""
        return max(0, self.samples * self.world_size - self.left)

    @property
    def dropped(self) -> int:
        """The number of samples that do not come in the epoch, over all ranks."""
        return max(0, self.left - self.samples * self.world_size)

    def to_json(self) -> dict[str, Any]:
        """Return how the order is divided: plain values for a state."""
        names = ("batch_size", "world_size", "uneven", "drop_last")
        return {name: getattr(self, name) for name in names}

    def padding(self, rank: int) -> int:
        """Return how many of the last samples of one rank are among the ``repeated``."""
        full = self.full_steps
        last = self.samples - full * self.batch_size
        end = full * self.world_size * self.batch_size + (rank + 1) * last
        return min(max(0, end - self.left), last)

    def consumed(self, batches: int) -> int:
        """Return how many samples of the order all ranks have had, from its beginning, after so many more batches."""
        each = min(batches * self.batch_size, self.samples)
        return min(self.count, self.start + each * self.world_size)

    def share(self, order: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
        """
        Return what is left for one rank of an order ``(count,)``, batch after batch: ``(samples,)`` int64.

        What is repeated comes from the beginning of the order.
        """
        if len(order) != self.count:
            raise ValueError(f"an order of {len(order)} samples: expected {self.count}, as in the division")
        rest, needed = order[self.start :], self.samples * self.world_size
        if self.world_size == 1 and needed <= len(rest):
            return rest[:needed]
        steps = self.full_steps
        full = rest[: steps * self.world_size * self.batch_size].reshape(steps, self.world_size, self.batch_size)
        return np.concatenate((full[:, rank].reshape(-1), order[self.last_step(rank)]))

    def places(self, rank: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return where in an order the samples from ``start`` up to ``stop`` of ``share`` are: ``(stop - start,)``."""
        full = self.full_steps * self.batch_size
        step, within = np.divmod(np.arange(start, min(stop, full), dtype=np.int64), self.batch_size)
        places = self.start + (step * self.world_size + rank) * self.batch_size + within
        if stop <= full:
            return places
        return np.concatenate((places, self.last_step(rank)[max(0, start - full) : stop - full]))

    def last_step(self, rank: int) -> NDArray[np.int64]:
        """
        Return the positions (in the order) of one rank's samples after the full steps: ``(n,)`` int64, n less than
        a batch, or a batch if samples are repeated to fill it.
        """
        done = self.full_steps * self.batch_size
        last = self.samples - done
        positions = self.start + done * self.world_size + rank * last + np.arange(last, dtype=np.int64)
        # Behind the end, the order begins again, as often as needed: there may be more ranks than samples.
        return positions % max(1, self.count)


def consumed_after(state: Mapping[str, Any], count: int, batches: int) -> int:
    """
    Return how many of ``count`` samples all ranks had had after so many batches, divided as a loader's state says.

    Raises ValueError if the state is damaged.
    """
    size = whole("batch_size", state.get("batch_size"), "1 or more in the state", least=1)
    world_size = whole("world_size", state.get("world_size"), "1 or more in the state", least=1)
    uneven: Any = state.get("uneven")
    division = Division(count, size, world_size, uneven, bool(state.get("drop_last")))
    most = division.batches
    return division.consumed(whole("batch", batches, f"0 to {most} in the state", least=0, below=most + 1))
