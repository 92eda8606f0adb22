"""From what users pass to one FastDataset and indices: Subset, ConcatDataset, masks, ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset, FastSubset, not_a_path
from fastio.dataset.token_stream import TokenStream, TokenWindows
from fastio.errors import SchemaError
from fastio.lazy import is_tensor, torch_class
from fastio.store.beside.joined import BesideStore, end_to_end
from fastio.store.index.store import SealedStore

__all__ = [
    "as_indices",
    "find_members",
    "join_members",
]


@dataclass(frozen=True, slots=True)
class Members:
    """
    ``base`` holds the samples; ``chosen`` are the indices of the ones meant, int64, in order (None: all).

    ``datasets`` are the FastDatasets met: ``base`` alone, or those that it joins. ``is_opened`` means that ``base``
    was opened here, and the caller must close it.
    """

    base: FastDataset
    chosen: NDArray[np.int64] | None
    datasets: Sequence[FastDataset]
    is_opened: bool

    def __len__(self) -> int:
        return len(self.base) if self.chosen is None else len(self.chosen)


def find_members(dataset: object, *, verify: bool) -> Members:
    """
    Find the samples meant. Raises TypeError for anything but FastDatasets, paths, and torch's Subset or ConcatDataset
    of them.

    ``verify`` applies to a store that is opened here.
    """
    if isinstance(dataset, BesideStore):  # belongs to whoever opened it
        joined = FastDataset(dataset, verify=verify)
        return Members(joined, None, (joined,), is_opened=False)
    if isinstance(dataset, (str, Path)):
        opened = FastDataset(dataset, verify=verify)
        return Members(opened, None, (opened,), is_opened=True)
    if isinstance(dataset, FastDataset):
        return Members(dataset, None, (dataset,), is_opened=False)
    members, (chosen,) = join_members([dataset], owner="ConcatDataset")
    is_all = np.array_equal(chosen, np.arange(len(members.base)))
    return members if is_all else replace(members, chosen=chosen)


def join_members(datasets: Sequence[object], *, owner: str) -> tuple[Members, list[NDArray[np.int64]]]:
    """
    Find the samples of several datasets in one base; return each dataset's indices in it. ``owner`` is what joins them,
    for errors.

    Raises TypeError as ``find_members``, and SchemaError if the samples cannot be in one batch.
    """
    found = _Found([])
    indices = [found.places(dataset) for dataset in datasets]
    is_joined = len(found.datasets) > 1
    base = _joined(found.datasets, owner) if is_joined else found.datasets[0]
    return Members(base, None, found.datasets, is_opened=is_joined), indices


@dataclass(frozen=True, slots=True)
class _Found:
    """The FastDatasets met so far, each once; their samples are numbered one dataset after the other."""

    datasets: list[FastDataset]

    def places(self, dataset: Any) -> NDArray[np.int64]:
        """Return the positions of the samples of ``dataset`` among those of all FastDatasets."""
        if isinstance(dataset, FastDataset):
            return self._first(dataset) + np.arange(len(dataset), dtype=np.int64)
        if _is_plain(dataset, FastSubset) or _is_plain(dataset, torch_class("utils.data.Subset")):
            inner = self.places(dataset.dataset)
            return inner[as_indices(dataset.indices, len(inner), name="Subset.indices")]
        if _is_plain(dataset, torch_class("utils.data.ConcatDataset")):
            return np.concatenate([self.places(member) for member in dataset.datasets])
        if dataset is None or isinstance(dataset, (bool, int, float, bytes, list, tuple, Mapping)):
            raise TypeError(not_a_path("a FastDataset or the path of a store", dataset))
        is_stream = isinstance(dataset, TokenStream)
        remedy = "pass windows of it, stream.windows(1025)" if is_stream else "use torch's DataLoader for it"
        raise TypeError(
            "FastLoader needs a FastDataset, the path of a store, or torch's Subset or ConcatDataset of "
            f"FastDatasets, got {type(dataset).__name__}: {remedy}"
        )

    def _first(self, dataset: FastDataset) -> int:
        """Return the position of a dataset's first sample."""
        first = 0
        for known in self.datasets:
            if known is dataset:
                return first
            first += len(known)
        self.datasets.append(dataset)
        return first


def _is_plain(dataset: Any, kind: Any) -> bool:
    """Return whether samples are those of torch's own class: a subclass that changes them must not be passed over."""
    names = ("__getitem__", "__getitems__", "__len__")
    return isinstance(dataset, kind) and all(
        getattr(type(dataset), name, None) is getattr(kind, name, None) for name in names
    )


def _joined(datasets: Sequence[FastDataset], owner: str) -> FastDataset:
    """Join several FastDatasets into one. Raises SchemaError if they cannot be read as one."""
    first = datasets[0]
    windows = [dataset for dataset in datasets if isinstance(dataset, TokenWindows)]
    if len(windows) == len(datasets):
        for dataset in datasets:
            for name in ("transform", "verify"):
                _check_equal(first, dataset, name, owner)
        return TokenWindows.of_members(windows)
    stores: list[SealedStore | BesideStore] = []
    for dataset in datasets:
        if dataset.makes_samples or len(dataset) != len(dataset.store):
            raise TypeError(
                f"{dataset.store.path}: {type(dataset).__name__} makes its own samples or length, and cannot be "
                f"joined with others{_or_torch(owner)}"
            )
        for name in ("transform", "verify"):
            _check_equal(first, dataset, name, owner)
        for name in ("mode", "fields"):
            _check_equal(first, dataset, name, owner)
        if isinstance(dataset, TokenWindows):
            raise SchemaError(
                f"{dataset.store.path}: windows of a stream and samples of a store cannot be in one batch: open the "
                "store as a stream, too: TokenStream(path).windows(...)"
            )
        if not isinstance(dataset.store, (SealedStore, BesideStore)):
            raise TypeError(
                f"{dataset.store.path}: dataset.samples was assigned, and such a dataset cannot be joined with "
                f"others: use torch's Subset of the dataset as it was opened{_or_torch(owner)}"
            )
        stores.append(dataset.store)
    by_member = [dataset.target_transform for dataset in datasets]
    agree = all(each is by_member[0] for each in by_member)
    store = _joined_store(first, datasets, stores, has_classes=agree)
    options: dict[str, Any] = {"mode": first.mode, "fields": first.fields, "verify": first.verify}
    if agree:
        return FastDataset(store, first.transform, by_member[0], **options)
    ends = np.cumsum([len(member) for member in stores])
    return _LabelledByMember(store, first.transform, _ByMember(tuple(by_member)), ends=ends, **options)


def _joined_store(
    first: FastDataset,
    datasets: Sequence[FastDataset],
    stores: Sequence[SealedStore | BesideStore],
    *,
    has_classes: bool,
) -> SealedStore | BesideStore:
    """Return the store of all samples. Raises SchemaError if samples of one dataset have other fields."""
    for dataset in datasets:
        if dataset.form != first.form and (dataset.form.is_joint or first.form.is_joint):
            raise SchemaError(
                f"{dataset.store.path}: samples have {', '.join(dataset.form.names)}, but in {first.store.path} "
                f"{', '.join(first.form.names)}: name the fields that all have: FastDataset(..., fields=(...))"
            )
    store = end_to_end(stores, list(first.readers) or [first.reader.field.name], has_classes=has_classes)
    lost = [name for name in first.form.names if name not in store.schema]
    if lost:
        raise SchemaError(
            f"{stores[1].path}: the columns {', '.join(map(repr, lost))} are of another kind than in another store of "
            "this loader: pack them the same way, or name the other fields: FastDataset(..., fields=(...))"
        )
    return store


def _check_equal(first: FastDataset, other: FastDataset, name: str, owner: str) -> None:
    """Raise SchemaError unless two datasets have the same ``name``."""
    expected, found = getattr(first, name), getattr(other, name)
    if expected is not found and expected != found:
        raise SchemaError(
            f"{other.store.path}: has {name}={found!r}, but {first.store.path} has {expected!r}: all datasets of a "
            f"{owner} need the same {name}{_remedy(name, owner)}"
        )


def _remedy(name: str, owner: str) -> str:
    if owner == "Mixture" and name == "transform":
        return ": pass those of fastio.transforms by member, Mixture(..., transforms={name: [...]})"
    return _or_torch(owner)


def _or_torch(owner: str) -> str:
    """Say where to go with a ConcatDataset, which torch's DataLoader takes, too; a Mixture is only FastLoader's."""
    return ": use torch's DataLoader for the ConcatDataset otherwise" if owner == "ConcatDataset" else ""


class _LabelledByMember(FastDataset):
    """A joined dataset whose labels differ in meaning by member: each is a pair of member and label."""

    def __init__(self, *args: Any, ends: NDArray[np.int64], **options: Any) -> None:
        super().__init__(*args, **options)
        self._ends = ends

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """``(n, 2)`` int64: the number of the member, and the label in it."""
        own = FastDataset.labels.func(self)  # type: ignore[attr-defined] # what the cached property computes
        if own is None:
            return None
        if own.ndim != 1 or own.dtype != np.int64:
            raise SchemaError(
                f"{self.store.path}: different target_transforms need integer labels, got {own.dtype} of shape "
                f"{own.shape[1:]}: give the datasets the same target_transform"
            )
        members = np.searchsorted(self._ends, np.arange(len(own)), side="right")
        return np.stack([members, own], axis=1)


@dataclass(frozen=True, slots=True)
class _ByMember:
    """Changes a label by the target_transform of its member."""

    transforms: tuple[Callable[[Any], Any] | None, ...]

    def __call__(self, pair: NDArray[np.int64]) -> Any:
        member, label = pair.tolist()
        transform = self.transforms[member]
        return label if transform is None else transform(label)


# Parses indices as users write them: numbers, masks, ranges, tensors.


def as_indices(indices: Any, count: int, *, name: str) -> NDArray[np.int64]:
    """
    Return positions below ``count``, int64, from a 1-D array, tensor or sequence of integers, or a mask of booleans.

    An index may repeat, and may be negative as in a list. Raises TypeError or ValueError for anything else,
    IndexError for a number outside.
    """
    if is_tensor(indices):
        indices = indices.cpu().numpy()
    if not isinstance(indices, (np.ndarray, list, tuple, range)) and not hasattr(indices, "__array__"):
        raise TypeError(f"{name}: expected an array, list or range of integers, got {type(indices).__name__}")
    array = np.asarray(indices)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got an array of shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != count:
            raise ValueError(f"{name}: a mask of {len(array)} entries for {count} samples: give one per sample")
        return np.flatnonzero(array)
    if len(array) == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers or booleans, got {array.dtype}")
    outside = (array < -count) | (array >= count)
    if outside.any():
        place = int(outside.argmax())
        raise IndexError(f"{name}[{place}] is {array[place]}: expected indices of {count} samples")
    found = array.astype(np.int64)
    found[found < 0] += count
    return found
