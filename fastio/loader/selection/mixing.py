"""From a Mixture and a loader's options to the plan of its batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.loader.options import LoaderOptions, OrderOptions
from fastio.loader.selection.mixture import Mixture
from fastio.samplers.batches import OrderSampler
from fastio.samplers.member_order import MemberOrder
from fastio.samplers.mixed_order import Blend, MixedOrder
from fastio.samplers.mixture import MixtureSampler
from fastio.samplers.order import Division
from fastio.samplers.page_cache import PageCache
from fastio.samplers.per_source import PerSourceSampler
from fastio.samplers.position import whole
from fastio.samplers.share import Share

__all__ = ["check_mixture", "mixture_sampler"]

_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: seeds of neighbouring members far apart


def check_mixture(options: LoaderOptions) -> None:
    """Raise ValueError for options that choose samples or their order another way."""
    samples = options.samples
    named = {"indices": samples.indices, "sampler": samples.sampler, "batch_sampler": samples.batch_sampler}
    named["weights"] = samples.weights
    conflicts = [name for name, value in named.items() if value is not None]
    if conflicts:
        hint = "make the members torch's Subsets" if conflicts == ["indices"] else "its weights and batching decide"
        raise ValueError(f"{', '.join(conflicts)}: not for a Mixture, {hint}: drop it here")


def mixture_sampler(
    mixture: Mixture,
    indices: Sequence[NDArray[np.int64]],
    options: LoaderOptions,
    share: Share,
    *,
    sizes: Callable[[], NDArray[np.int64]],
    labels: Callable[[], NDArray[Any] | None],
    memory: Callable[[], PageCache],
) -> MixtureSampler | PerSourceSampler:
    """
    Return the sampler of a mixture, which numbers samples one member after the other.

    ``indices`` are those of each member in the base; ``sizes`` and ``labels`` are of all samples of the base, and
    ``memory`` is what all orders together may count on.
    """
    order, blend, per_epoch = options.order, mixture.blend, options.samples.samples_per_epoch
    for name, own in zip(blend.names, indices, strict=True):
        if len(own) == 0:
            raise ValueError(f"Mixture: member {name!r} has no samples: leave it out")
    count = sum(map(len, indices)) if per_epoch is None else per_epoch
    count = whole("samples_per_epoch", count, "a whole number of at least 1", least=1)
    assert order.batch_size is not None
    division = Division(count, order.batch_size, share.world_size, order.uneven, order.drop_last)
    stored = _Stored(sizes, labels, memory)
    members = [
        MemberOrder(_member_order(number, own, stored, blend, division, order)) for number, own in enumerate(indices)
    ]
    starts = [_start(step, division) for step, _ in blend.schedule]
    mixed = MixedOrder(blend, members, samples_per_epoch=count, seed=order.seed, starts=starts)
    kind = PerSourceSampler if blend.batching == "per_source" else MixtureSampler
    return kind(mixed, division, rank=share.rank, options={"shuffle": order.shuffle, "seed": order.seed})


def _start(step: int, division: Division) -> int:
    """Return the sample of the stream at which a step begins; steps are counted over epochs."""
    epoch, step = divmod(step, max(1, division.batches))
    return epoch * division.count + min(step * division.world_size * division.batch_size, division.count)


class _Stored:
    """Sizes and labels of all samples of the base, read once, and the memory that each member's order may count on."""

    def __init__(
        self,
        sizes: Callable[[], NDArray[np.int64]],
        labels: Callable[[], NDArray[Any] | None],
        memory: Callable[[], PageCache],
    ) -> None:
        self.sizes, self.labels = cache(sizes), cache(labels)
        self._memory = memory

    def memory(self, indices: NDArray[np.int64]) -> PageCache:
        """Return a member's part of the page cache: as much of it as of the bytes of all members."""
        held, sizes = self._memory(), self.sizes()
        total = int(sizes.sum())
        return replace(held, nbytes=held.nbytes * int(sizes[indices].sum()) // total if total else held.nbytes)


def _member_order(
    number: int,
    indices: NDArray[np.int64],
    stored: _Stored,
    blend: Blend,
    division: Division,
    order: OrderOptions,
) -> OrderSampler:
    """Return the order of one member, chosen for its part of a batch."""
    share = max(weights[number] / sum(weights) for _, weights in blend.schedule)
    batch_size = max(1, round(division.batch_size * (1 if blend.batching == "per_source" else share)))
    return OrderSampler(
        Division(len(indices), batch_size, division.world_size),
        rank=0,
        shuffle=order.shuffle,
        seed=(order.seed + (number + 1) * _MULTIPLIER) % (1 << 64),
        sizes=lambda: stored.sizes()[indices],
        labels=lambda: None if (labels := stored.labels()) is None else labels[indices],
        memory=lambda: stored.memory(indices),
    )
