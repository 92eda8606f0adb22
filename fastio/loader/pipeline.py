"""From what a loader is asked to do with pixels to who does it: a producer, and a delivery to a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_collate import TokenCollate
from fastio.loader.device import Delivery
from fastio.loader.device.lane import lane_to
from fastio.loader.producer import Cache, Producer, ProducerOptions, ResidentProducer, check_cache, in_ram, what_to_keep
from fastio.loader.producer.choose import (
    CollateName,
    Decode,
    Layout,
    Quality,
    collate_of,
    fused_of,
    has_rows,
    producer_of,
)
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.finish import ChannelsLast, Contiguous
from fastio.transforms.batch.recipe import AnyTransform, as_list, split
from fastio.transforms.compose import Compose
from fastio.transforms.transform import Transform

__all__ = ["Pipeline", "PixelOptions", "build_pipeline"]

_DEPTH = 2  # batches copied ahead to the device


@dataclass(frozen=True, slots=True)
class PixelOptions:
    """What is to be done with samples: see FastLoader."""

    transforms: Sequence[AnyTransform] | AnyTransform | None
    collate: TokenCollate | CollateName | None
    quality: Quality
    layout: Layout
    device: torch.device | str | int | None
    cache: Cache | None
    decode: Decode
    seed: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """
    Who makes the batches, and who brings them to a device (None: they stay as they are made).

    ``transforms`` names what native threads do with pictures, for states: None for nothing.
    """

    producer: Producer
    delivery: Delivery | None
    transforms: str | None


def build_pipeline(
    dataset: FastDataset,
    indices: NDArray[np.int64] | None,
    options: PixelOptions,
    means: ProducerOptions,
    *,
    batch_sampler: Any,
) -> Pipeline:
    """The pipeline for the samples of ``dataset`` at ``indices`` (None: all); ValueError for options at odds."""
    device, cache, decode, seed = options.device, options.cache, options.decode, options.seed
    _check_decode(decode, device=device, cache=cache)
    check_cache(dataset, cache, device=device, on_error=means.on_error)
    transforms = as_list(options.transforms)
    if device is None and any(isinstance(each, BatchTransform) for each in transforms):
        device = "cpu"
    native, behind = split(transforms, on_device=device is not None, resident=cache == "device")
    described = repr(Compose(native)) if native else None
    source, kept = dataset, None
    threads, verify = means.threads, means.verify
    if cache is not None:
        first = native if cache == "ram" else _leading(behind)
        kept = what_to_keep(dataset, indices, first, quality=options.quality, seed=seed)
        if cache == "ram":
            source, native = in_ram(kept, threads=threads, verify=verify), list(kept.rest)
        else:
            behind = behind[len(first) - len(kept.rest) :]
    delivery = None
    if device is not None:
        is_made_there = cache == "device" or decode == "device"
        delivery = Delivery(
            lane_to(device),
            depth=_DEPTH,
            transforms=_laid_out(behind, options.layout),
            seed=seed,
            is_made_there=is_made_there,
        )
    is_planar = options.layout == "contiguous" and has_rows(dataset)
    fused = fused_of(source, native, quality=options.quality, layout=options.layout, seed=seed)
    if decode == "device" and not native:
        fused = None  # the layout is a matter of the device there
    producer: Producer
    if cache == "device" and kept is not None and delivery is not None:
        producer = ResidentProducer(kept, delivery.device, threads=threads, verify=verify, is_planar=is_planar)
    else:
        producer = producer_of(
            source,
            decodes_on=delivery.device if decode == "device" and delivery is not None else None,
            fused=fused,
            collate=collate_of(dataset, options.collate, batch_sampler),
            is_planar=is_planar,
            means=means,
        )
    return Pipeline(producer, delivery, described)


def _leading(transforms: Sequence[Any]) -> list[Any]:
    """The crops, resizes and flips at the beginning."""
    return list(takewhile(lambda each: isinstance(each, Transform), transforms))


def _laid_out(transforms: Sequence[Any], layout: Layout) -> list[Any]:
    """The transforms on a device, and after them (but before the user's own functions) the layout asked for."""
    ours = list(takewhile(lambda each: isinstance(each, (Transform, BatchTransform)), transforms))
    if not ours or layout == "channels_last" or any(isinstance(each, ChannelsLast) for each in ours):
        return list(transforms)
    return [*ours, Contiguous(), *transforms[len(ours) :]]


def _check_decode(decode: object, *, device: object, cache: object) -> None:
    """ValueError for an unknown place to decode, or one that conflicts with another option."""
    if decode not in ("cpu", "device"):
        raise ValueError(f"decode={decode!r}: expected 'cpu' or 'device'")
    if decode == "device" and device is None:
        raise ValueError("decode='device': pass device='cuda' too, to say which")
    if decode == "device" and cache is not None:
        raise ValueError(f"decode='device' with cache={cache!r}: a cache is decoded once, by the CPU; leave one out")
