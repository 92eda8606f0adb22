"""Which samples a loader reads, and in which batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.selection.indices import as_indices
from fastio.loader.selection.members import find_members
from fastio.loader.selection.subset import FastSubset
from fastio.loader.selection.weights import as_weights
from fastio.samplers.batches import BatchSampler, OrderSampler
from fastio.samplers.drawn import Draw, DrawnSampler
from fastio.samplers.foreign import ForeignBatchSampler, ForeignDraw, own_share
from fastio.samplers.mapped import MappedSampler
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.samplers.position import whole
from fastio.samplers.share import Share
from fastio.samplers.weights import WeightedDraw

__all__ = ["BatchPlan", "Chosen", "Wish", "choose", "sample_bytes", "sample_labels"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks for: see FastLoader."""

    batch_size: int | None
    indices: Any
    sampler: Iterable[Any] | None
    batch_sampler: BatchSampler | Iterable[Any] | None
    weights: Any
    samples_per_epoch: int | None
    shuffle: Shuffle
    seed: int
    drop_last: bool
    rank: int | None
    world_size: int | None
    uneven: Uneven
    is_cached: bool  # nothing is read in an epoch
    verify: bool | None  # of a store that is opened here


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The sampler of a loader, which plans by places in the dataset that its user sees, and what is known of it."""

    sampler: BatchSampler
    share: Share
    batch_size: int | None = None
    division: Division | None = None  # where it is the same in every epoch
    order: OrderSampler | None = None  # where it is an order of ours
    foreign: ForeignDraw | ForeignBatchSampler | None = None  # only the user's sampler knows the order
    is_own_share: bool = False  # which is this rank's part already


@dataclass(frozen=True, slots=True)
class Chosen:
    """
    The samples of a loader and the plan of its batches.

    ``dataset`` is what the user sees, ``base`` the FastDataset that holds its samples: those at ``indices`` (None:
    all). ``sampler`` plans as ``plan`` does, by the indices of ``base``.
    """

    dataset: Dataset[Any]
    base: FastDataset
    datasets: Sequence[FastDataset]  # those that base joins, or base alone
    is_opened: bool
    indices: NDArray[np.int64] | None
    plan: BatchPlan
    sampler: BatchSampler

    def __len__(self) -> int:
        return len(self.base) if self.indices is None else len(self.indices)

    def proof(self, epoch: int) -> dict[str, Any]:
        """
        Names the order of an epoch that has begun, where only the user's sampler knows it, for a saved state.

        A sampler that draws one rank's part proves nothing to other ranks: it is compared on the same rank only.
        """
        foreign = self.plan.foreign
        if foreign is None:
            return {}
        rank = self.plan.share.rank if self.plan.is_own_share else None
        return {"drawn_order": {"epoch": epoch, "rank": rank, "crc32": foreign.order_crc32(epoch)}}

    def check_proof(self, state: Mapping[str, Any]) -> None:
        """ValueError where the user's sampler draws another order than when the state was saved."""
        order = state.get("drawn_order")
        if self.plan.foreign is None or not isinstance(order, Mapping) or not state.get("batch"):
            return
        epoch = state.get("epoch")
        expected = self.proof(order["epoch"])["drawn_order"] if order.get("epoch") == epoch else order
        if order.get("rank") == expected["rank"] and order != expected:
            raise ValueError(
                f"{self.base.store.path}: the sampler draws another order for epoch {epoch} than when the state was "
                f"saved, so that batch {state['batch']} would have other samples; let its order depend on "
                f"set_epoch(epoch), or on generators of torch, numpy or random alone, or begin the epoch anew by "
                f"set_epoch({epoch}) instead"
            )


def choose(dataset: object, wish: Wish) -> Chosen:
    """The samples and batches that are asked for; TypeError, ValueError or IndexError where that makes no sense."""
    _check_exclusive(wish)
    members = find_members(dataset, verify=wish.verify is not False)
    base, indices = members.base, members.chosen
    shown: Any = dataset if isinstance(dataset, Dataset) else base
    if wish.indices is not None:
        picked = as_indices(wish.indices, len(members), name="indices")
        indices = picked if indices is None else indices[picked]
        shown = FastSubset(base, indices)
    plan = _plan(base, indices, wish)
    sampler = plan.sampler if indices is None else MappedSampler(plan.sampler, indices, checksum_name="indices_crc32")
    return Chosen(shown, base, members.datasets, members.is_opened, indices, plan, sampler)


def sample_bytes(dataset: FastDataset, *, is_cached: bool) -> NDArray[np.int64]:
    """The bytes that each sample reads from the store; 0 for what is cached, and for samples of a subclass' own."""
    store = dataset.store
    if is_cached or dataset.makes_samples or len(dataset) > len(store):
        return np.zeros(len(dataset), np.int64)
    return store.spans(dataset.reader.field.name, np.arange(len(dataset), dtype=np.int64), checksums=False).sizes


def sample_labels(dataset: FastDataset) -> NDArray[Any] | None:
    """The stored label of each sample; None without labels, and where a subclass makes samples itself."""
    if dataset.labels is None or dataset.makes_samples or len(dataset) > len(dataset.labels):
        return None
    return dataset.labels[: len(dataset)]


def _check_exclusive(wish: Wish) -> None:
    """ValueError for options of which one decides what another one is about."""
    shuffle = wish.shuffle or None
    decided = {
        "batch_sampler": {
            "batch_size": wish.batch_size,
            "shuffle": shuffle,
            "drop_last": wish.drop_last or None,
            "sampler": wish.sampler,
            "weights": wish.weights,
        },
        "sampler": {"shuffle": shuffle, "weights": wish.weights},
        "weights": {"shuffle": shuffle},
    }
    for name, others in decided.items():
        twice = [other for other, value in others.items() if value is not None]
        if getattr(wish, name) is not None and twice:
            verb = "decide" if name == "weights" else "decides"
            raise ValueError(f"{', '.join(twice)}: the {name} {verb} that; leave it out here")
    if wish.samples_per_epoch is not None and wish.weights is None:
        raise ValueError(f"samples_per_epoch={wish.samples_per_epoch}: is for weights=; leave it out")


def _plan(base: FastDataset, indices: NDArray[np.int64] | None, wish: Wish) -> BatchPlan:
    count = len(base) if indices is None else len(indices)
    if isinstance(wish.batch_sampler, BatchSampler):
        return _planned_by(base, wish.batch_sampler, wish, count)
    if wish.batch_sampler is not None:
        share, is_own = _share_with(wish.batch_sampler, wish)
        lists = ForeignBatchSampler(
            wish.batch_sampler, samples=count, seed=wish.seed, share=share, uneven=wish.uneven, is_own=is_own
        )
        return BatchPlan(lists, share, foreign=lists, is_own_share=is_own)
    batch_size = whole("batch_size", wish.batch_size, "a whole number from 1", least=1)
    if wish.sampler is not None:
        share, is_own = _share_with(wish.sampler, wish)
        foreign = ForeignDraw(wish.sampler, samples=count, seed=wish.seed)
        drawn = _drawn(foreign, wish, batch_size, share, is_own=is_own)
        return BatchPlan(drawn, share, batch_size, foreign=foreign, is_own_share=is_own)
    share = Share.of(wish.rank, wish.world_size)
    if wish.weights is not None:
        labels = _at(partial(sample_labels, base), indices)
        samples = count if wish.samples_per_epoch is None else wish.samples_per_epoch
        draw = WeightedDraw(
            as_weights(wish.weights, base, labels, count),
            samples_per_epoch=whole("samples_per_epoch", samples, "a whole number from 1", least=1),
            seed=wish.seed,
        )
        drawn = _drawn(draw, wish, batch_size, share)
        return BatchPlan(drawn, share, batch_size, drawn.division(samples))
    division = Division(count, batch_size, share.world_size, wish.uneven, wish.drop_last)
    sampler, order = _ordered(base, indices, wish, division, share)
    return BatchPlan(sampler, share, batch_size, division, order)


def _ordered(
    base: FastDataset, indices: NDArray[np.int64] | None, wish: Wish, division: Division, share: Share
) -> tuple[BatchSampler, OrderSampler]:
    """
    An order of ours, and what plans by the places of ``indices``.

    A shuffled one is that of the samples as they lie in the store, however they are listed.
    """
    by_place = None
    if indices is not None and wish.shuffle and (np.diff(indices) < 0).any():
        by_place = np.argsort(indices, kind="stable")
    stored = indices if by_place is None or indices is None else indices[by_place]
    order = OrderSampler(
        division,
        rank=share.rank,
        shuffle=wish.shuffle,
        seed=wish.seed,
        sizes=partial(_at, partial(sample_bytes, base, is_cached=wish.is_cached), stored),
        labels=partial(_at, partial(sample_labels, base), stored),
    )
    return (order if by_place is None else MappedSampler(order, by_place, checksum_name=None)), order


def _at(values: Callable[[], NDArray[Any] | None], indices: NDArray[np.int64] | None) -> Any:
    """What ``values`` gives for these samples; all where ``indices`` is None, None where it gives nothing."""
    every = values()
    return every if every is None or indices is None else every[indices]


def _drawn(draw: Draw, wish: Wish, batch_size: int, share: Share, *, is_own: bool = False) -> DrawnSampler:
    return DrawnSampler(
        draw, batch_size=batch_size, share=share, uneven=wish.uneven, drop_last=wish.drop_last, is_own=is_own
    )


def _share_with(sampler: object, wish: Wish) -> tuple[Share, bool]:
    """The share of a user's sampler, and whether that is what it draws; ValueError where it is another rank's."""
    own = own_share(sampler)
    if own is None:
        return Share.of(wish.rank, wish.world_size), False
    if (wish.rank, wish.world_size) not in (own, (None, None)):
        raise ValueError(
            f"rank={wish.rank}, world_size={wish.world_size}: {type(sampler).__name__} draws for rank {own[0]} of "
            f"{own[1]}; leave them out here, or give it the same"
        )
    return Share(*own, is_found=False), True


def _planned_by(base: FastDataset, sampler: BatchSampler, wish: Wish, count: int) -> BatchPlan:
    """ValueError for a BatchSampler of another dataset or rank."""
    own = sampler.rank, sampler.world_size
    if (wish.rank, wish.world_size) not in (own, (None, None)):
        raise ValueError(
            f"rank={wish.rank}, world_size={wish.world_size}: the batch_sampler plans for rank {own[0]} of {own[1]}; "
            f"give it the same rank and world_size"
        )
    samples = sampler.configuration().get("samples", count)
    if samples != count:
        raise ValueError(f"{base.store.path}: {count} samples, but the batch_sampler plans {samples}")
    return BatchPlan(sampler, Share(*own, is_found=False))  # the sampler looks after its share itself
