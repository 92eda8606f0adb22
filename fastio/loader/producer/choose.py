"""Which producer makes the batches of a dataset, and with which transforms and collate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_collate import PackCollate, PadCollate, TokenCollate
from fastio.errors import SchemaError
from fastio.loader.producer.device_decode import DeviceDecodeProducer
from fastio.loader.producer.gpu_decoder import decoder_on
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.plain import PlainProducer
from fastio.loader.producer.producer import Producer, ProducerOptions
from fastio.loader.producer.tokens import TokenProducer
from fastio.samplers.batches import BatchSampler
from fastio.samplers.bucket import LengthBucketSampler
from fastio.samplers.pack import PackSampler
from fastio.transforms.fused import Fused

__all__ = [
    "CollateName",
    "Decode",
    "Layout",
    "ProducerOptions",
    "Quality",
    "collate_of",
    "fused_of",
    "has_rows",
    "producer_of",
]

Layout = Literal["contiguous", "channels_last"]
Quality = Literal["exact", "fast"]
CollateName = Literal["pad", "pack"]
Decode = Literal["cpu", "device"]


def collate_of(
    dataset: FastDataset, wish: TokenCollate | CollateName | None, sampler: BatchSampler | None
) -> TokenCollate | None:
    """
    The collate for a dataset of token ids; None for torch's default.

    "pad" rounds to what the LengthBucketSampler counts with, and "pack" makes batches as large as those that the
    PackSampler plans.
    """
    tokens = dataset.token_reader
    if tokens is None:
        if wish is not None:
            raise SchemaError(
                f"{dataset.store.path}: collate= is for token ids, but samples are {dataset.reader.field}; leave it out"
            )
        return None
    if wish is None and not dataset.is_as_stored:
        return None
    if wish is None or wish == "pad":
        multiple = sampler.pad_to_multiple if isinstance(sampler, LengthBucketSampler) else 1
        return PadCollate(tokens.pad_id, pad_to_multiple=multiple)
    if wish == "pack":
        return PackCollate(sampler.max_tokens if isinstance(sampler, PackSampler) else None, tokens.pad_id)
    if not isinstance(wish, TokenCollate):
        raise ValueError(f"collate={wish!r}: expected 'pad', 'pack', or a PadCollate, PackCollate or ChunkCollate")
    return wish


def fused_of(
    dataset: FastDataset,
    transforms: Sequence[Any],
    *,
    quality: Quality,
    layout: Layout,
    seed: int,
) -> Fused | None:
    """
    The transforms for the native core; None if it has nothing to do beyond decoding.

    It takes planes apart for ``layout="contiguous"``. What other code collates is contiguous already.
    """
    for name, value, choices in (("layout", layout, get_args(Layout)), ("quality", quality, get_args(Quality))):
        if value not in choices:
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}")
    if not transforms and quality == "exact" and layout == ("channels_last" if has_rows(dataset) else "contiguous"):
        return None
    what = "transforms=" if transforms else f"quality={quality!r}" if quality != "exact" else f"layout={layout!r}"
    reader = dataset.reader
    if not dataset.is_as_stored:
        raise ValueError(
            f"{what} is for pictures that native threads decode, but this dataset has a transform or methods of its "
            f"own: leave it out here, and call fastio.transforms there, each of which is a function of a picture"
        )
    if not reader.is_picture:
        raise SchemaError(f"{dataset.store.path}: {what} is for pictures, but the samples are {reader.field}")
    is_raw = reader.row_shape is not None
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[reader.row_shape[2]] if reader.row_shape is not None else reader.mode
    return Fused(transforms, seed=seed, mode=mode, is_raw=is_raw, is_fast=quality == "fast")


def has_rows(dataset: FastDataset) -> bool:
    """Whether native threads decode its samples as rows of pixels."""
    return dataset.is_as_stored and dataset.reader.is_picture


def producer_of(
    dataset: FastDataset,
    *,
    decodes_on: torch.device | None,
    fused: Fused | None,
    collate: TokenCollate | None,
    is_planar: bool,
    means: ProducerOptions,
) -> Producer:
    """Native jobs where the dataset's samples are what the native core decodes, its own methods otherwise."""
    if decodes_on is not None:
        if not dataset.is_as_stored:
            raise ValueError(
                f"{dataset.store.path}: decode='device' is for a FastDataset without a transform or methods of its own"
            )
        decoder = decoder_on(decodes_on, threads=means.threads)
        return DeviceDecodeProducer(dataset, decoder, decodes_on, fused=fused, is_planar=is_planar, means=means)
    threads, on_error, pin_memory, verify = means.threads, means.on_error, means.pin_memory, means.verify
    if collate is not None and dataset.is_as_stored:
        return TokenProducer(dataset, collate, threads=threads, verify=verify, on_error=on_error, pin_memory=pin_memory)
    if not dataset.is_as_stored or not dataset.reader.has_rows:
        if verify != dataset.verify:
            raise ValueError(
                f"{dataset.store.path}: verify={verify} does not reach samples that the dataset makes itself; pass it "
                f"there: FastDataset(..., verify={verify})"
            )
        return PlainProducer(dataset, collate, threads=threads, on_error=on_error, pin_memory=pin_memory)
    return NativeProducer(
        dataset,
        threads=threads,
        depth=means.depth,
        on_error=on_error,
        verify=verify,
        pin_memory=pin_memory,
        fused=fused,
        is_planar=is_planar,
    )
