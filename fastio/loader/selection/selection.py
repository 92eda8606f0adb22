"""Selection: which samples a loader reads, and in which batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset, FastSubset
from fastio.dataset.token_stream import TokenWindows
from fastio.lazy import Dataset, is_tensor
from fastio.loader.options import LoaderOptions, OrderOptions
from fastio.loader.selection.members import as_indices, find_members, join_members
from fastio.loader.selection.mixture import (
    MemberTransforms,
    Mixture,
    check_mixture,
    member_transforms,
    mixture_sampler,
)
from fastio.samplers.batches import BatchSampler, ChosenOrder, ElasticSampler, OrderSampler
from fastio.samplers.cost import Costs
from fastio.samplers.draws import Draw, DrawnSampler, WeightedDraw
from fastio.samplers.foreign import ForeignBatchSampler, ForeignDraw, own_share
from fastio.samplers.memory import PageCache, held_memory, page_cache
from fastio.samplers.mixture import MixtureSampler, PerSourceSampler
from fastio.samplers.order import Division
from fastio.samplers.planned import PlannedSampler
from fastio.samplers.position import as_array, whole
from fastio.samplers.share import Ranks, Share, slices_by_node
from fastio.samplers.wrappers import MappedSampler, as_elastic
from fastio.store.beside.joined import BesideStore
from fastio.store.protocol import SampleStore

__all__ = [
    "Selection",
    "sample_bytes",
    "sample_labels",
    "sample_total",
    "select",
    "shuffle_memory",
]


@dataclass(frozen=True, slots=True)
class DrawWeights:
    """The draw of a loader by weights, and what brings into its form what users pass."""

    draw: WeightedDraw
    parsed: Callable[[Any], NDArray[np.float64] | Callable[[int], NDArray[np.float64]]]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The sampler of a loader, which plans by positions in the dataset that the user sees, and its properties."""

    sampler: ElasticSampler
    share: Share
    batch_size: int | None = None
    division: Division | None = None  # if it is the same in every epoch
    order: ChosenOrder | None = None  # if it is one of fastio's orders
    foreign: ForeignDraw | ForeignBatchSampler | None = None  # only the user's sampler knows the order
    is_own_share: bool = False  # it is already this rank's part
    weights: DrawWeights | None = None  # by which samples are drawn


@dataclass(slots=True)
class Selection:
    """
    The samples of a loader and the plan of its batches, which ``set_ranks`` replaces by that of ``plan_for``.

    ``dataset`` is what the user sees, ``base`` the FastDataset that holds its samples: those at ``indices`` (None:
    all). ``sampler`` plans like ``plan``, with the indices of ``base``; ``mixture`` is its sampler if it is one.
    """

    dataset: Dataset[Any]
    base: FastDataset
    datasets: Sequence[FastDataset]  # the datasets that base joins, or base alone
    stores: Sequence[SampleStore]  # theirs, as the loader was built
    is_opened: bool
    indices: NDArray[np.int64] | None
    plan: BatchPlan
    plan_for: Callable[[Ranks, BatchPlan], BatchPlan]  # on other ranks, with what the plan before has drawn
    member_transforms: MemberTransforms | None = None  # if it is a mixture whose members have transforms of their own
    sampler: ElasticSampler = field(init=False)
    mixture: MixtureSampler | PerSourceSampler | None = field(init=False)

    def __post_init__(self) -> None:
        self._adopt(self.plan)

    def _adopt(self, plan: BatchPlan) -> None:
        own, table = plan.sampler, self.indices
        self.plan, self.mixture = plan, own if isinstance(own, (MixtureSampler, PerSourceSampler)) else None
        self.sampler = own if table is None else MappedSampler(own, table, checksum_name="indices_crc32")

    def __len__(self) -> int:
        return len(self.base) if self.indices is None else len(self.indices)

    def check_unchanged(self, *, reads_samples: bool) -> None:
        """
        ValueError where a dataset has other samples, or another transform, than when the loader was built.

        ``reads_samples``: batches are made of dataset[i] itself, whose transform counts whenever it was assigned.
        """
        for dataset, store in zip(self.datasets, self.stores, strict=True):
            if dataset.store is not store:
                raise ValueError(
                    f"{dataset.store.path}: dataset.samples was assigned after this FastLoader was built, which still "
                    "reads the old samples: assign it first, or build the loader again"
                )
        transform = self.base.transform if reads_samples else None
        if any(dataset.transform is not transform for dataset in self.datasets):
            raise ValueError(
                f"{self.base.store.path}: the dataset got its transform after this FastLoader was built, which "
                "decodes without one: set it first, or build the loader again"
            )

    def set_ranks(self, ranks: Ranks) -> None:
        """Plan for another share of the samples. Raises ValueError if the user's sampler draws for its own alone."""
        self._adopt(self.plan_for(ranks, self.plan))

    def set_weights(self, weights: Any, *, epoch: int) -> None:
        """Draw by other weights from an epoch on. Raises ValueError for a loader that does not draw by weights."""
        path, own = self.base.store.path, self.plan.weights
        if own is None:
            remedy = "mixture.at(step=...) changes those of a Mixture" if self.mixture is not None else "pass weights="
            raise ValueError(
                f"{path}: this FastLoader was built without weights=, so set_weights has none to replace: {remedy}"
            )
        own.draw.change(own.parsed(weights), epoch=epoch)

    def weights_of(self, epoch: int) -> dict[str, Any]:
        """Return what a state says of the weights by which an epoch is drawn."""
        return {} if self.plan.weights is None else self.plan.weights.draw.to_json(epoch)

    def adopt_weights(self, state: Mapping[str, Any], epoch: int) -> None:
        """Raise ValueError if an epoch has begun with other weights than this loader's."""
        if self.plan.weights is not None:
            self.plan.weights.draw.adopt(state, epoch, has_begun=_has_begun(state))

    def proof(self, epoch: int) -> dict[str, Any]:
        """
        Return a checksum of the order of a started epoch, if only the user's sampler knows it, for a saved state.

        A sampler that draws one rank's part proves nothing to other ranks: it is compared only on the same rank.
        """
        foreign = self.plan.foreign
        if foreign is None:
            return {}
        rank = self.plan.share.rank if self.plan.is_own_share else None
        return {"drawn_order": {"epoch": epoch, "rank": rank, "crc32": foreign.order_crc32(epoch)}}

    def check_proof(self, state: Mapping[str, Any]) -> None:
        """Raise ValueError if the user's sampler draws another order than when the state was saved."""
        order = state.get("drawn_order")
        if self.plan.foreign is None or not isinstance(order, Mapping) or not _has_begun(state):
            return
        epoch = state.get("epoch")
        expected = self.proof(order["epoch"])["drawn_order"] if order.get("epoch") == epoch else order
        if order.get("rank") == expected["rank"] and order != expected:
            raise ValueError(
                f"{self.base.store.path}: the sampler draws another order for epoch {epoch} than when the state was "
                "saved, so the rest of it would be other samples: let its order depend only on "
                "set_epoch(epoch), or on generators of torch, numpy or random, or start the epoch over with "
                f"set_epoch({epoch})"
            )


def _has_begun(state: Mapping[str, Any]) -> bool:
    """Whether a state, of any version, is within an epoch."""
    return bool(state.get("consumed") or state.get("batch"))


def select(dataset: object, options: LoaderOptions) -> Selection:
    """
    Choose the samples and batches that the user asks for. Raises TypeError, ValueError or IndexError if that makes no
    sense.
    """
    per_epoch = options.samples.samples_per_epoch
    if isinstance(dataset, Mixture):
        check_mixture(options)
        return _choose_mixture(dataset, options)
    options.check_exclusive()
    if per_epoch is not None and options.samples.weights is None:
        raise ValueError(f"samples_per_epoch={per_epoch}: only for weights= or a Mixture: drop it")
    members = find_members(dataset, verify=options.work.verify is not False)
    base, indices = members.base, members.chosen
    shown: Any = base if isinstance(dataset, (str, Path, BesideStore)) else dataset
    if options.samples.indices is not None:
        picked = as_indices(options.samples.indices, len(members), name="indices")
        indices = picked if indices is None else indices[picked]
        shown = FastSubset(base, indices)

    def plan_for(ranks: Ranks, before: BatchPlan | None) -> BatchPlan:
        return _plan(base, indices, replace(options, order=replace(options.order, ranks=ranks)), before)

    plan, stores = plan_for(options.order.ranks, None), [member.store for member in members.datasets]
    return Selection(shown, base, members.datasets, stores, members.is_opened, indices, plan, plan_for)


def _choose_mixture(mixture: Mixture, options: LoaderOptions) -> Selection:
    """Choose the samples of a mixture. Raises SchemaError if the samples of two members cannot be in one batch."""
    members, indices = join_members(list(mixture.members.values()), owner="Mixture")
    base = members.base
    if options.order.shuffle is not False:
        indices = [np.sort(own) for own in indices]  # shuffled orders follow the samples as stored

    def plan_for(ranks: Ranks, before: BatchPlan | None) -> BatchPlan:
        share = ranks.share()
        planned = mixture_sampler(
            mixture,
            indices,
            options,
            share,
            sizes=partial(sample_bytes, base, is_cached=options.pixels.cache is not None),
            labels=partial(sample_labels, base),
            memory=shuffle_memory(base, share.processes),
        )
        division = None if mixture.batching == "per_source" else planned.division
        return BatchPlan(planned, share, planned.division.batch_size, division, order=planned.order)

    table = np.concatenate(indices)
    is_all = np.array_equal(table, np.arange(len(base)))
    return Selection(
        mixture,
        base,
        members.datasets,
        [member.store for member in members.datasets],
        members.is_opened,
        None if is_all else table,
        plan_for(options.order.ranks, None),
        plan_for,
        member_transforms(mixture, indices, samples=len(base)),
    )


def sample_bytes(dataset: FastDataset, *, is_cached: bool) -> NDArray[np.int64]:
    """Return the bytes that each sample reads from the store; 0 for cached samples, and for a subclass's own."""
    store = dataset.store
    if is_cached or dataset.makes_samples or len(dataset) > len(store):
        return np.zeros(len(dataset), np.int64)
    if isinstance(dataset, TokenWindows):  # of which there may be millions, in one file
        return dataset.lengths * dataset.store.runs.dtype.itemsize
    each = [store.value_bytes(name)[: len(dataset)] for name in dataset.readers]
    return each[0] if len(each) == 1 else sum(each, np.zeros(len(dataset), np.int64))


def sample_total(dataset: FastDataset, *, is_cached: bool) -> int:
    """Return the sum of ``sample_bytes``; of samples as stored, without a look at each."""
    is_as_stored = not (is_cached or dataset.makes_samples or isinstance(dataset, TokenWindows))
    if is_as_stored and len(dataset) == len(dataset.store):
        return sum(dataset.store.total_bytes(name) for name in dataset.readers)
    return int(sample_bytes(dataset, is_cached=is_cached).sum())


def sample_labels(dataset: FastDataset) -> NDArray[Any] | None:
    """Return the stored label of each sample; None without labels, and if a subclass makes samples itself."""
    if dataset.labels is None or dataset.makes_samples or len(dataset) > len(dataset.labels):
        return None
    return dataset.labels[: len(dataset)]


def shuffle_memory(dataset: FastDataset, processes: int) -> Callable[[], PageCache]:
    """Return what says how many bytes of the store stay in memory: the page cache, or what ranks may hold."""
    return partial(held_memory if dataset.store.files.holds else page_cache, processes)


def _plan(
    base: FastDataset, indices: NDArray[np.int64] | None, options: LoaderOptions, before: BatchPlan | None
) -> BatchPlan:
    """Return the plan that options mean; on other ranks than ``before``, with what that has drawn and will draw."""
    count = len(base) if indices is None else len(indices)
    samples, order = options.samples, options.order
    if before is not None and before.is_own_share:
        raise ValueError(
            f"{base.store.path}: the sampler draws the samples of rank {before.share.rank} alone, so it cannot give "
            "those of another one: build the loader again, with a sampler for its new rank"
        )
    if isinstance(samples.batch_sampler, BatchSampler):
        planned = samples.batch_sampler if before is None else _on_other_ranks(samples.batch_sampler, base, order)
        return _planned_by(base, planned, order, count)
    if before is not None and isinstance(before.foreign, ForeignBatchSampler):
        share = order.ranks.share()
        lists = before.foreign.for_ranks(share)
        return BatchPlan(lists, share, foreign=lists)
    if samples.batch_sampler is not None:
        share, is_own = _share_with(samples.batch_sampler, order)
        lists = ForeignBatchSampler(
            samples.batch_sampler, samples=count, seed=order.seed, share=share, uneven=order.uneven, is_own=is_own
        )
        return BatchPlan(lists, share, foreign=lists, is_own_share=is_own)
    assert order.batch_size is not None
    if samples.sampler is not None:
        share, is_own = _share_with(samples.sampler, order)
        foreign = None if before is None else before.foreign
        if not isinstance(foreign, ForeignDraw):
            foreign = ForeignDraw(samples.sampler, samples=count, seed=order.seed)
        if is_own and samples.cost is not None:
            raise ValueError(
                f"cost: {type(samples.sampler).__name__} draws this rank's samples alone, so none can be dealt among "
                "the ranks: pass shuffle= or a sampler that draws for all ranks"
            )
        drawn = _drawn(foreign, order, share, is_own=is_own, costs=_costs(base, indices, samples.cost, count))
        return BatchPlan(drawn, share, order.batch_size, foreign=foreign, is_own_share=is_own)
    share = order.ranks.share()
    if samples.weights is not None:
        labels = _at(partial(sample_labels, base), indices)
        per_epoch = count if samples.samples_per_epoch is None else samples.samples_per_epoch
        per_epoch = whole("samples_per_epoch", per_epoch, "a whole number of at least 1", least=1)
        weights = None if before is None else before.weights
        if weights is None:
            parsed = partial(_parsed_weights, dataset=base, labels=labels, count=count)
            draw = WeightedDraw(parsed(samples.weights), samples_per_epoch=per_epoch, seed=order.seed)
            weights = DrawWeights(draw, parsed)
        drawn = _drawn(weights.draw, order, share, costs=_costs(base, indices, samples.cost, count))
        return BatchPlan(drawn, share, order.batch_size, drawn.division(per_epoch), weights=weights)
    division = Division(count, order.batch_size, share.world_size, order.uneven, order.drop_last)
    sampler, ordered = _ordered(base, indices, options, division, share)
    return BatchPlan(sampler, share, order.batch_size, division, ordered)


def _ordered(
    base: FastDataset,
    indices: NDArray[np.int64] | None,
    options: LoaderOptions,
    division: Division,
    share: Share,
) -> tuple[ElasticSampler, OrderSampler]:
    """
    Return one of fastio's orders, and what plans by positions in ``indices``.

    If it is shuffled, it follows the samples as stored, whatever order they are listed in.
    """
    shuffle, by_place = options.order.shuffle, None
    if indices is not None and shuffle and (np.diff(indices) < 0).any():
        by_place = np.argsort(indices, kind="stable")
    stored = indices if by_place is None or indices is None else indices[by_place]
    is_cached = options.pixels.cache is not None
    costs = _costs(base, indices, options.samples.cost, len(base) if indices is None else len(indices))
    if costs is not None and by_place is not None:
        costs = Costs(costs.values[by_place])
    order = OrderSampler(
        division,
        rank=share.rank,
        shuffle=shuffle,
        seed=options.order.seed,
        sizes=partial(_at, partial(sample_bytes, base, is_cached=is_cached), stored),
        total=partial(sample_total, base, is_cached=is_cached) if stored is None else None,
        labels=partial(_at, partial(sample_labels, base), stored),
        memory=shuffle_memory(base, share.processes),
        costs=costs,
    )
    if shuffle is True:
        order.slices = slices_by_node(share)
    return (order if by_place is None else MappedSampler(order, by_place, checksum_name=None)), order


def _at(values: Callable[[], NDArray[Any] | None], indices: NDArray[np.int64] | None) -> Any:
    """Return ``values`` for these samples; all if ``indices`` is None, None if there are none."""
    every = values()
    return every if every is None or indices is None else every[indices]


def _costs(base: FastDataset, indices: NDArray[np.int64] | None, cost: Any, count: int) -> Costs | None:
    """Return what each of ``count`` samples costs. Raises TypeError or ValueError for what are no costs of them."""
    if cost is None:
        return None
    if isinstance(cost, str):
        values = np.asarray(_at(partial(base.column, cost), indices))
    else:
        values = as_array(cost.cpu().numpy() if is_tensor(cost) else cost)
    if values.dtype.kind not in "biuf" or values.ndim != 1:
        raise TypeError(
            f"cost: expected one number per sample, or the name of a column of numbers, got an array of {values.dtype} "
            f"{values.shape}"
        )
    if len(values) != count:
        raise ValueError(f"{base.store.path}: {len(values)} costs for {count} samples: give one per sample")
    costs = np.ascontiguousarray(values, np.float64)
    wrong = ~(np.isfinite(costs) & (costs >= 0))
    if wrong.any():
        raise ValueError(
            f"cost[{int(wrong.argmax())}] is {costs[wrong.argmax()]}: expected finite numbers of at least 0"
        )
    return Costs(costs)


def _drawn(
    draw: Draw, order: OrderOptions, share: Share, *, is_own: bool = False, costs: Costs | None = None
) -> DrawnSampler:
    assert order.batch_size is not None
    return DrawnSampler(
        draw,
        batch_size=order.batch_size,
        share=share,
        uneven=order.uneven,
        drop_last=order.drop_last,
        is_own=is_own,
        costs=costs,
    )


def _share_with(sampler: object, order: OrderOptions) -> tuple[Share, bool]:
    """
    Return the share of a user's sampler, and whether it already draws that. Raises ValueError if it is another
    rank's.
    """
    own = own_share(sampler)
    if own is None:
        return order.ranks.share(), False
    order.ranks.check_own(own, f"{type(sampler).__name__} draws", "drop them here, or give the sampler the same")
    return Share(*own, is_found=False), True


def _on_other_ranks(sampler: BatchSampler, base: FastDataset, order: OrderOptions) -> BatchSampler:
    """Return a sampler of fastio's for other ranks. Raises ValueError for one that is not."""
    if isinstance(sampler, PlannedSampler):
        return sampler.for_ranks(order.ranks)
    raise ValueError(
        f"{base.store.path}: a {type(sampler).__name__} cannot be told other ranks: build it and the loader again"
    )


def _planned_by(base: FastDataset, sampler: BatchSampler, order: OrderOptions, count: int) -> BatchPlan:
    """Raise ValueError for a BatchSampler of another dataset or rank."""
    own = sampler.rank, sampler.world_size
    order.ranks.check_own(own, "the batch_sampler plans", "give it the same rank and world_size")
    samples = sampler.configuration().get("samples", count)
    if samples != count:
        raise ValueError(f"{base.store.path}: {count} samples, but the batch_sampler plans {samples}")
    # The sampler takes care of its share itself: only fastio's own say more about it than its rank.
    share = sampler.share if isinstance(sampler, PlannedSampler) else Share(*own, is_found=False)
    return BatchPlan(as_elastic(sampler), replace(share, is_found=False))


# Parses weights as users write them, one per sample or one per class, into an array with one entry per sample.


def _parsed_weights(
    weights: Any, *, dataset: FastDataset, labels: NDArray[Any] | None, count: int
) -> NDArray[np.float64] | Callable[[int], NDArray[np.float64]]:
    """Return weights, or a function that returns them for the number of an epoch."""
    if callable(weights):
        return lambda epoch: as_weights(weights(epoch), dataset, labels, count)
    return as_weights(weights, dataset, labels, count)


def as_weights(weights: Any, dataset: FastDataset, labels: NDArray[Any] | None, count: int) -> NDArray[np.float64]:
    """
    Return the weight of each of ``count`` samples with these ``labels``; ``dataset`` names them and its classes.

    A mapping holds the weight of each sample of a class, by label or class name; other classes have 1. Raises
    ValueError for a wrong count of weights, or an unknown class.
    """
    if isinstance(weights, Mapping):
        return _by_class(weights, dataset, labels)
    if is_tensor(weights):
        weights = weights.cpu().numpy()
    array = as_array(weights)
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        raise TypeError(
            f"weights: expected one number per sample, or {{class: weight}}, got an array of {array.dtype} "
            f"{array.shape}"
        )
    if len(array) != count:
        hint = "; for one weight per class, pass {class: weight}" if len(array) == len(dataset.classes) else ""
        raise ValueError(f"{dataset.store.path}: {len(array)} weights for {count} samples{hint}")
    return np.ascontiguousarray(array, np.float64)


def _by_class(weights: Mapping[Any, Any], dataset: FastDataset, labels: NDArray[Any] | None) -> NDArray[np.float64]:
    path = dataset.store.path
    if labels is None or labels.ndim != 1 or labels.dtype != np.int64:
        kind = "none" if labels is None else f"{labels.dtype} {labels.shape}"
        raise ValueError(f"{path}: weights by class need a class for each sample, but labels are {kind}")
    present, places = np.unique(labels, return_inverse=True)
    known = {*present.tolist(), *dataset.class_to_idx.values()}
    table: dict[int, float] = {}
    for name, weight in weights.items():
        label = dataset.class_to_idx.get(name) if isinstance(name, str) else name
        if isinstance(label, bool) or not isinstance(label, (int, np.integer)) or int(label) not in known:
            raise ValueError(f"{path}: weights: no class {name!r} among {_some(dataset.classes)}")
        if int(label) in table:
            raise ValueError(f"{path}: weights: class {label} comes twice, as {name!r} too")
        try:
            table[int(label)] = float(weight)
        except (TypeError, ValueError):
            raise ValueError(f"{path}: weights: class {name!r} has {weight!r}: expected a number") from None
    return np.array([table.get(label, 1.0) for label in present.tolist()], np.float64)[places]


def _some(names: list[str]) -> str:
    """Return the first names."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
