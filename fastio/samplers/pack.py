"""PackSampler: batches of samples that together fill a budget of tokens, for packed sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import PlannedSampler

__all__ = ["PackSampler"]

_WINDOW_SAMPLES = 1 << 16
_MOST_TOKENS = (1 << 31) - 2


class PackSampler(PlannedSampler):
    """
    Packs each window of an epoch's random order into batches of up to ``max_tokens`` tokens, without padding.

        sampler = PackSampler(dataset.column("length"), max_tokens=8192)
        FastLoader(dataset, batch_sampler=sampler, collate=PackCollate(tokens=8192))

    It packs by best fit decreasing: the longest sample first, each into the batch that it fills most. The emptiest
    batches of a window are reopened in the next one, so only those of the last window may be far from full.

    * ``window``: how many samples are packed together, 65,536 by default.
    * A step is one batch per rank. If the last step has too few, ``uneven`` decides: "pad" and "repeat" repeat
      batches of that step, "drop" leaves them out. ``plan(epoch)`` counts the samples.
    * Apart from those, each sample comes exactly once per epoch. All ranks compute the same plan.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        *,
        max_tokens: int,
        window: int = _WINDOW_SAMPLES,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Uneven = "pad",
    ) -> None:
        super().__init__(lengths, rank=rank, world_size=world_size)
        if window < 1:
            raise ValueError(f"window={window}: expected 1 or more")
        if not 1 <= max_tokens <= _MOST_TOKENS:
            raise ValueError(f"max_tokens={max_tokens}: expected 1 to {_MOST_TOKENS}")
        if len(self._lengths) and self._lengths.max() > max_tokens:
            index = int(self._lengths.argmax())
            raise ValueError(
                f"max_tokens={max_tokens}: sample {index} alone has {self._lengths[index]} tokens: raise "
                "max_tokens, or cut texts when packing (fastio pack --max-length)"
            )
        self.max_tokens = max_tokens
        self.window = window
        self.shuffle = shuffle
        self.seed = seed
        self.uneven = uneven
        Division(0, 1, self.world_size, uneven)  # refuses unknown values

    def _plan(self, epoch: int) -> Batches:
        if len(self._lengths) == 0:
            return Batches(np.empty(0, np.int64), np.zeros(1, np.int64))
        order = np.empty(len(self._lengths), np.int64)
        cuts = _native.best_fit_bins(
            self._lengths,
            order,
            window=self.window,
            capacity=min(self.max_tokens, max(1, int(self._lengths.sum(dtype=np.int64)))),  # a window costs memory
            world_size=self.world_size,
            seed=self.seed,
            epoch=epoch if self.shuffle else None,
        )
        sizes, world = np.diff(cuts), self.world_size
        full = len(sizes) // world
        steps = self._shuffled(full, epoch) if self.shuffle else np.arange(full, dtype=np.int64)
        rest = np.arange(full * world, len(sizes))
        division = Division(len(rest), 1, world, self.uneven)
        last = np.resize(rest, division.samples * world)
        mine = np.concatenate((steps * world + self.rank, last[self.rank :: world]))
        ends = np.concatenate(([0], np.cumsum(sizes[mine])))
        indices = np.empty(int(ends[-1]), np.int64)
        _native.deal_steps(order, cuts, mine, 0, 1, indices)
        repeated = int(sizes[last[len(rest) :]].sum())
        dropped = 0 if len(last) else int(sizes[rest].sum())
        return Batches(indices, ends, repeated, dropped)

    def _rules(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("max_tokens", "window", "shuffle", "uneven")}
