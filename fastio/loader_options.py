"""What FastLoader refuses before it starts: options that would only fail later, and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from fastio.dataset import FastDataset
from fastio.producer import OnError
from fastio.samplers.batches import BatchSampler

__all__ = ["check_choices", "check_decode", "check_sampler", "check_subclass"]


def check_choices(dataset: object, *, shuffle: object, on_error: object) -> None:
    """TypeError or ValueError for an argument that would only fail later, and elsewhere."""
    if not isinstance(dataset, (FastDataset, str, Path)):
        raise TypeError(
            f"FastLoader needs a FastDataset or the path of a store, got {type(dataset).__name__}; for a part of "
            f"one, pass a subclass of FastDataset with its own __len__ and __getitem__, or use torch's DataLoader"
        )
    # By identity: 1 and numpy's True equal True and would be another configuration in a saved state.
    if not (shuffle is False or shuffle is True or (isinstance(shuffle, str) and shuffle == "full")):
        raise ValueError(f"shuffle={shuffle!r}: expected False, True or 'full'")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error={on_error!r}: expected one of {', '.join(map(repr, get_args(OnError)))}")


def check_decode(decode: object, *, device: object, cache: object) -> None:
    """ValueError for a place to decode that is none, or that another option takes the sense of."""
    if decode not in ("cpu", "device"):
        raise ValueError(f"decode={decode!r}: expected 'cpu' or 'device'")
    if decode == "device" and device is None:
        raise ValueError("decode='device': pass device='cuda' too, to say which")
    if decode == "device" and cache is not None:
        raise ValueError(f"decode='device' with cache={cache!r}: a cache is decoded once, by the CPU; leave one out")


def check_sampler(
    dataset: FastDataset,
    sampler: BatchSampler,
    given: Mapping[str, object],
    *,
    rank: int | None,
    world_size: int | None,
) -> None:
    """TypeError or ValueError for no BatchSampler, one of another dataset or rank, or what it decides given beside."""
    if not isinstance(sampler, BatchSampler):
        raise TypeError(
            f"batch_sampler={type(sampler).__name__}: expected LengthBucketSampler, PackSampler or another with "
            f"plan(epoch), count(epoch) and configuration(), see fastio.samplers.batches.BatchSampler"
        )
    twice = [name for name, value in given.items() if value is not None]
    if twice:
        raise ValueError(f"{', '.join(twice)}: the batch_sampler decides that; leave it out here")
    own = sampler.rank, sampler.world_size
    if (rank, world_size) not in (own, (None, None)):
        raise ValueError(
            f"rank={rank}, world_size={world_size}: the batch_sampler plans for rank {own[0]} of {own[1]}; give it the "
            f"same rank and world_size"
        )
    samples = sampler.configuration().get("samples", len(dataset))
    if samples != len(dataset):
        raise ValueError(f"{dataset.store.path}: {len(dataset)} samples, but the batch_sampler plans {samples}")


def check_subclass(dataset: FastDataset, *, on_error: OnError) -> None:
    """ValueError where the loader would take the store's samples for those that a subclass makes of them."""
    path, kind = dataset.store.path, type(dataset)
    overrides = kind.__getitem__ is not FastDataset.__getitem__ or kind.__getitems__ is not FastDataset.__getitems__
    if on_error == "zero" and overrides and kind.blank is FastDataset.blank:
        raise ValueError(
            f"{path}: on_error='zero' cannot know the label of a sample that {kind.__name__} makes itself; "
            f"use on_error='skip' or 'raise', or give {kind.__name__} a blank(index) of its own"
        )
