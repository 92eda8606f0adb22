"""LengthBucketSampler: batches of samples with similar lengths, so that little is padded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import PlannedSampler

__all__ = ["LengthBucketSampler"]

_WINDOW_STEPS = 1024


class LengthBucketSampler(PlannedSampler):
    """
    Groups samples of similar length into batches, so that little is padded.

        sampler = LengthBucketSampler(dataset.column("length"), batch_size=64)
        DataLoader(dataset, batch_sampler=sampler, collate_fn=PadCollate())
        FastLoader(dataset, batch_sampler=sampler, collate="pad")

    Each window of an epoch's random order is sorted by length and cut into batches, which come in random order.

    * ``batch_size``: samples per batch. Instead, ``max_tokens`` limits a batch's tokens with padding: the longest
      sample, rounded up to ``pad_to_multiple``, times the samples.
    * ``window``: how many samples are sorted together. A larger window pads less; in a smaller one, a sample meets more
      varied neighbours. The default is 1024 batches of every rank.
    * A step is one batch per rank. All ranks get the same number of samples, dealt in turn from one run of the sorted
      window, so the longest sample of each rank is among the ``world_size`` longest of the step.
    * Each sample comes exactly once per epoch. ``uneven`` says what happens to the rest in the last step, as in
      ``Division``: "pad" repeats samples of that step, "drop" leaves some out, "repeat" fills its batches.
      ``drop_last`` leaves out a last step with short batches. ``plan(epoch)`` counts what is repeated and dropped.
    * The plan depends only on lengths, seed, epoch and world size; all ranks compute the same one. With
      ``max_tokens`` and several windows, the number of batches may differ between epochs.

    accelerate and transformers share out the batches of a DataLoader themselves when they run several processes: pass
    ``rank=0, world_size=1``. Under Lightning, use ``Trainer(use_distributed_sampler=False)``. Otherwise the first
    batch raises an error (see ``share``). A FastLoader from ``fastio.integrations`` needs neither.
    """

    def __init__(  # noqa: PLR0913 - the names of torch's samplers, which its users know
        self,
        lengths: ArrayLike,
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        window: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        pad_to_multiple: int = 1,
        uneven: Uneven = "pad",
    ) -> None:
        super().__init__(lengths, rank=rank, world_size=world_size)
        if (batch_size is None) == (max_tokens is None):
            raise ValueError(f"batch_size={batch_size}, max_tokens={max_tokens}: expected exactly one of the two")
        numbers = (("batch_size", batch_size), ("max_tokens", max_tokens), ("window", window))
        for name, number in (*numbers, ("pad_to_multiple", pad_to_multiple)):
            if number is not None and number < 1:
                raise ValueError(f"{name}={number}: expected 1 or more")
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.pad_to_multiple = pad_to_multiple
        self.uneven = uneven
        self._check_longest()
        self.window = window or self._default_window()
        Division(0, 1, self.world_size, uneven, drop_last)  # refuses unknown values

    def _check_longest(self) -> None:
        if self.max_tokens is None or len(self._lengths) == 0:
            return
        index = int(self._lengths.argmax())
        padded = self._padded(int(self._lengths[index]))
        if padded > self.max_tokens:
            raise ValueError(
                f"max_tokens={self.max_tokens}: sample {index} alone has {self._lengths[index]} tokens, {padded} "
                "with padding: raise max_tokens, or cut texts when packing (fastio pack --max-length)"
            )

    def _padded(self, length: int) -> int:
        return -(-length // self.pad_to_multiple) * self.pad_to_multiple

    def _default_window(self) -> int:
        batch = self.batch_size
        if batch is None:
            assert self.max_tokens is not None
            mean = float(self._lengths.mean()) if len(self._lengths) else 1.0
            batch = int(self.max_tokens / max(mean, 1.0)) + 1
        return _WINDOW_STEPS * batch * self.world_size

    def _plan(self, epoch: int) -> Batches:
        if len(self._lengths) == 0:
            return Batches(np.empty(0, np.int64), np.zeros(1, np.int64))
        order = np.empty(len(self._lengths), np.int64)
        cuts = _native.bucket_steps(
            self._lengths,
            order,
            window=self.window,
            batch_size=self.batch_size or 0,
            max_tokens=self.max_tokens or 0,
            multiple=self.pad_to_multiple,
            world_size=self.world_size,
            seed=self.seed,
            epoch=epoch if self.shuffle else None,
        )
        last, division = self._last_step(order[cuts[-2] :])
        steps = len(cuts) - 2
        numbers = self._shuffled(steps, epoch) if self.shuffle else np.arange(steps, dtype=np.int64)
        sizes = np.append(np.diff(cuts)[numbers] // self.world_size, [len(last)] if len(last) else [])
        ends = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        return Batches(self._mine(order, cuts, numbers, last), ends, division.repeated, division.dropped)

    def _mine(
        self, order: NDArray[np.int64], cuts: NDArray[np.int64], steps: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return this rank's samples: those of the full steps in the order of ``steps``, then ``last``."""
        rest = int(cuts[-2])
        if self.world_size == 1 and self.batch_size is not None and len(last) <= len(order) - rest:
            # In place: allocating new memory would take longer than the plan.
            _native.permute_steps(order, self.batch_size, steps)
            return order[: rest + len(last)]
        mine = np.empty(rest // self.world_size + len(last), np.int64)
        _native.deal_steps(order, cuts, steps, self.rank, self.world_size, mine)
        mine[rest // self.world_size :] = last
        return mine

    def _last_step(self, step: NDArray[np.int64]) -> tuple[NDArray[np.int64], Division]:
        """Return this rank's samples of the last step, which may be short, and how it was shared out."""
        size = self.batch_size
        if size is None:
            assert self.max_tokens is not None
            size = self.max_tokens // max(1, self._padded(int(self._lengths[step].max())))
        division = Division(len(step), size, self.world_size, self.uneven, self.drop_last)
        taken = np.resize(step, division.samples * self.world_size)
        return taken[self.rank :: self.world_size], division

    def _rules(self) -> dict[str, Any]:
        names = ("batch_size", "max_tokens", "window", "shuffle", "drop_last", "pad_to_multiple", "uneven")
        return {name: getattr(self, name) for name in names}
