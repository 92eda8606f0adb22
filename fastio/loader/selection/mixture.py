"""Mixture: several datasets in fixed or changing proportions, for FastLoader."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.lazy import Dataset
from fastio.loader.options import LoaderOptions, OrderOptions
from fastio.samplers.batches import OrderSampler
from fastio.samplers.memory import PageCache
from fastio.samplers.mixed_order import Batching, Blend, MemberOrder, MixedOrder
from fastio.samplers.mixture import MixtureSampler, PerSourceSampler
from fastio.samplers.order import Division
from fastio.samplers.position import whole
from fastio.samplers.share import Share
from fastio.samplers.shares import whole_weights
from fastio.store.beside.joined import BesideStore
from fastio.transforms.batch.recipe import AnyTransform, Colours, as_list, is_geometry
from fastio.types.options import cannot_be_set, explains_names
from fastio.types.spans import distinct

__all__ = [
    "MemberTransforms",
    "Mixture",
    "check_mixture",
    "member_transforms",
    "mixture_sampler",
]


Weight = int | float | Fraction | Decimal


class Mixture(Dataset[Any]):
    """
    Several datasets in given proportions, for FastLoader::

        mixture = fastio.Mixture({"web": "web.h5", "code": "code.h5"}, weights={"web": 7, "code": 3})
        mixture = mixture.at(step=20_000, weights={"web": 4, "code": 6})
        loader = fastio.FastLoader(mixture, 256, shuffle=True)

    ``members`` are FastDatasets, paths of stores (opened here), or torch's Subset or ConcatDataset of FastDatasets.
    ``weights`` has a number of at least 0 for each; their sum does not matter. They are exact: 0.1 is one tenth.

    Each member has its own order and its own epochs: one that is used up begins again, in another order, whatever the
    others do, and one that is not used up goes on in the loader's next epoch. Of the first n samples of a training,
    each member has given its share to within 1.7 samples (half a sample if there are two members, as long as weights
    stay). ``batching`` says what that means for a step, which is a batch on every rank:

    * "random": steps vary as if members were drawn at random; shares are exact for each 4,096 samples.
    * "stratified": each step has exact shares, as far as whole samples allow.
    * "per_source": each step has samples of one member; shares are exact over an epoch, which ends with a smaller step
      of each member (``drop_last`` leaves these out).

    ``transforms`` are those of members, by name: lists of crops, resizes, flips and colours that native threads run
    while they decode. Those of FastLoader follow for all members: colours, and transforms of batches such as Normalize.
    Pictures of one batch need one size. Masks, boxes and points follow the list of their member, with its own KeepBoxes
    and KeepPoints, or those of FastLoader.

    Raises ValueError for weights that do not fit the members. FastLoader raises SchemaError for members whose samples
    cannot be in one batch.
    """

    @explains_names()
    def __init__(
        self,
        members: Mapping[str, Dataset[Any] | str | Path | BesideStore],
        weights: Mapping[str, Weight],
        *,
        batching: Batching = "random",
        transforms: Mapping[str, Sequence[AnyTransform] | AnyTransform] | None = None,
    ) -> None:
        if not isinstance(members, Mapping):
            raise TypeError(f"members: expected a mapping of names to datasets or paths, got {_brief(members)}")
        if not members:
            raise ValueError("members: expected one dataset or path at least, got an empty mapping")
        if batching not in get_args(Batching):
            names = ", ".join(map(repr, get_args(Batching)))
            raise ValueError(f"batching={batching!r}: expected one of {names}")
        self.batching = batching
        self._schedule = {0: _exact(weights, tuple(members))}
        self.members: dict[str, Any] = {
            str(name): FastDataset(member) if isinstance(member, (str, Path, BesideStore)) else member
            for name, member in members.items()
        }
        self.transforms = _transforms(transforms, tuple(self.members))
        self._built = type(self) is Mixture

    if not TYPE_CHECKING:  # a checker would then take any attribute for known

        def __setattr__(self, name: str, value: Any) -> None:
            """
            Raise AttributeError, with what to do, for a public attribute of a mixture that is built: loaders over it
            have read it. A subclass may set its own.
            """
            if self.__dict__.get("_built", False) and not name.startswith("_"):
                later = "call at(step=..., weights=...), which returns a mixture with other weights from a step on"
                raise cannot_be_set(name, Mixture, later if name in ("weights", "schedule") else "")
            super().__setattr__(name, value)

    def at(self, *, step: int, weights: Mapping[str, Weight]) -> Self:
        """
        Return a mixture with other weights from a step on: a curriculum.

        Steps count from the first one of epoch 0, on all ranks together. When a loader is built, they become numbers
        of samples, which its states keep: after a resume with other batches, weights change at the same sample. Raises
        ValueError for a step that has weights already.
        """
        step = whole("step", step, "1 or more: the weights of step 0 are those of Mixture(...)", least=1)
        if step in self._schedule:
            raise ValueError(f"step={step}: has weights already: name each step once")
        changed = object.__new__(type(self))
        changed.__dict__ |= self.__dict__
        changed._schedule = dict(sorted({**self._schedule, step: _exact(weights, tuple(self.members))}.items()))
        return changed

    @property
    def schedule(self) -> dict[int, dict[str, Fraction]]:
        """The share of each member, from each step on; shares add up to 1."""
        return {
            step: {name: Fraction(weight, sum(weights)) for name, weight in zip(self.members, weights, strict=True)}
            for step, weights in self._schedule.items()
        }

    @property
    def blend(self) -> Blend:
        """What samplers need to know."""
        return Blend(tuple(self.members), tuple(self._schedule.items()), self.batching)

    def __len__(self) -> int:
        """Return the number of samples of all members together."""
        return sum(len(member) for member in self.members.values())

    def __getitem__(self, index: object) -> NoReturn:
        raise self._only_for_fast_loader()

    def __getitems__(self, indices: object) -> NoReturn:
        raise self._only_for_fast_loader()

    def __iter__(self) -> Iterator[Any]:
        raise self._only_for_fast_loader()

    def _only_for_fast_loader(self) -> TypeError:
        return TypeError(
            "a Mixture has no samples by number, because its members have epochs of their own: pass it to "
            "fastio.FastLoader instead of torch's DataLoader"
        )

    def __repr__(self) -> str:
        shares = self.schedule
        parts = [f"{name}: {float(share):.4g}" for name, share in shares[0].items()]
        later = [f"at step {step}" for step in list(shares)[1:]]
        changes = [f"other weights {', '.join(later)}"] if later else []
        own = [name for name, steps in self.transforms.items() if steps]
        return f"Mixture({', '.join([*parts, *changes, self.batching, *(f'transforms of {n}' for n in own)])})"


def _exact(weights: object, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return weights as whole numbers, in the order of ``names``. Raises ValueError if they do not fit."""
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights: expected a mapping of names to numbers, got {_brief(weights)}")
    unknown = [name for name in weights if name not in names]
    missing = [name for name in names if name not in weights]
    if unknown:
        raise ValueError(f"weights: no member {unknown[0]!r} among {', '.join(map(repr, names))}")
    if missing:
        raise ValueError(f"weights: no weight for {missing[0]!r}: give it one, or 0 to leave it out")
    exact = [_fraction(name, weights[name]) for name in names]
    if not any(exact):
        raise ValueError(f"weights: all {len(exact)} are 0: give at least one member a positive weight")
    return whole_weights(exact)


def _transforms(wish: object, names: tuple[str, ...]) -> dict[str, tuple[AnyTransform, ...]]:
    """Return the transforms of each member, in the order of ``names``; {} if none has any."""
    if wish is None:
        return {}
    if not isinstance(wish, Mapping):
        raise TypeError(
            f"transforms: expected a mapping of members to lists, got {_brief(wish)}: those of all members go to "
            "FastLoader(..., transforms=[...])"
        )
    unknown = [name for name in wish if name not in names]
    if unknown:
        raise ValueError(f"transforms: no member {unknown[0]!r} among {', '.join(map(repr, names))}")
    lists = {name: tuple(as_list(wish.get(name))) for name in names}
    for name, steps in lists.items():
        behind = list(dropwhile(is_geometry, steps))
        late = behind[Colours.leading(behind) :]
        if late:
            raise TypeError(
                f"transforms[{name!r}]: {late[0]!r} is not among the crops, resizes, flips and colours (in this order) "
                "that native threads run for one member: pass it to FastLoader(..., transforms=[...]), for all members"
            )
    return lists if any(lists.values()) else {}


def _fraction(name: str, weight: Any) -> Fraction:
    """Return the number that was written: 0.1 is one tenth, not the nearest binary fraction."""
    is_number = isinstance(weight, (numbers.Real, Decimal)) and not isinstance(weight, bool)
    if not is_number or not math.isfinite(weight) or weight < 0:
        raise ValueError(f"weights[{name!r}]={weight!r}: expected a finite number of at least 0")
    if isinstance(weight, numbers.Rational):
        return Fraction(int(weight.numerator), int(weight.denominator))
    return Fraction(str(weight))


def _brief(value: object) -> str:
    return repr(value) if isinstance(value, (str, int, float)) else type(value).__name__


# What native threads do with the pictures of each member.


@dataclass(frozen=True, slots=True)
class MemberTransforms:
    """The transforms of each member, by name, and the member of each sample of the dataset that joins them."""

    lists: Mapping[str, tuple[Any, ...]]
    member_of: NDArray[np.int16]

    def after(self, rules: Sequence[Any]) -> MemberTransforms:
        """Return these with rules of all members, such as KeepBoxes, before those of each."""
        return replace(self, lists={name: (*rules, *own) for name, own in self.lists.items()}) if rules else self

    def parts(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """Return for each member what its plan does, and what is done to its finished pictures."""
        plans = {name: list(takewhile(is_geometry, own)) for name, own in self.lists.items()}
        return {name: (plan, list(self.lists[name][len(plan) :])) for name, plan in plans.items()}

    def __repr__(self) -> str:
        return f"members: {', '.join(f'{name}: {list(own)!r}' for name, own in self.lists.items())}"


def member_transforms(
    mixture: Mixture, indices: Sequence[NDArray[np.int64]], *, samples: int
) -> MemberTransforms | None:
    """
    Return the transforms of the members, whose samples are at ``indices`` of the dataset that joins them; None if they
    have none. Raises ValueError for a sample of two members that differ in transforms.
    """
    if not mixture.transforms:
        return None
    names, lists = list(mixture.transforms), list(mixture.transforms.values())
    member_of = np.full(samples, -1, np.int16)
    for number, own in enumerate(indices):
        for other in distinct(member_of[own]).tolist():
            if other >= 0 and lists[other] != lists[number]:
                raise ValueError(
                    f"Mixture: members {names[other]!r} and {names[number]!r} have samples in common, but different "
                    "transforms: open the dataset once for each, FastDataset(path)"
                )
        member_of[own] = number
    return MemberTransforms(mixture.transforms, member_of)


# From a Mixture and a loader's options to the plan of its batches.

_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: seeds of neighbouring members far apart


def check_mixture(options: LoaderOptions) -> None:
    """Raise ValueError for options that choose samples or their order another way."""
    samples = options.samples
    named = {"indices": samples.indices, "sampler": samples.sampler, "batch_sampler": samples.batch_sampler}
    named |= {"weights": samples.weights, "cost": samples.cost}
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
