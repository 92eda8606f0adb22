"""Chooses the producer for the batches of a dataset, its transforms and its collate."""

from __future__ import annotations

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_collate import PackCollate, PadCollate, TokenCollate
from fastio.loader.options import CollateWish
from fastio.loader.producer.device_cache import DeviceCacheProducer
from fastio.loader.producer.device_decode import DeviceDecodeProducer
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.plain import PlainProducer
from fastio.loader.producer.producer import Producer, ProducerContext, ProducerKind
from fastio.loader.producer.tokens import TokenProducer
from fastio.samplers.bucket import LengthBucketSampler
from fastio.samplers.pack import PackSampler

__all__ = [
    "PRODUCERS",
    "choose_collate",
    "make_producer",
]


# The first that accepts makes the batches; the last accepts all.
PRODUCERS: list[ProducerKind] = [
    DeviceCacheProducer,
    DeviceDecodeProducer,
    TokenProducer,
    NativeProducer,
    PlainProducer,
]


def make_producer(context: ProducerContext) -> Producer:
    """The producer for these samples and options."""
    return next(kind for kind in PRODUCERS if kind.accepts(context))(context)


def choose_collate(dataset: FastDataset, wish: CollateWish, sampler: object) -> TokenCollate | None:
    """
    Return the collate for a dataset of token ids alone, or with labels; None for others, see ``row_collates``.

    "pad" rounds to the multiple that the LengthBucketSampler counts with, and "pack" makes batches as large as the
    PackSampler plans them.
    """
    tokens = dataset.token_reader
    if tokens is None or (wish is None and not dataset.is_as_stored):
        return None
    if wish != "pack" and not isinstance(wish, TokenCollate) and isinstance(sampler, PackSampler) and sampler.rows:
        raise ValueError(
            f"collate={wish!r}: the PackSampler plans rows={sampler.rows} a batch: expected collate='pack'"
        )
    if wish is None or wish == "pad":
        multiple = sampler.pad_to_multiple if isinstance(sampler, LengthBucketSampler) else 1
        return PadCollate(tokens.pad_id, pad_to_multiple=multiple)
    if wish == "pack":
        if isinstance(sampler, PackSampler):
            return PackCollate(sampler.max_tokens, tokens.pad_id, rows=sampler.rows)
        return PackCollate(None, tokens.pad_id)
    if not isinstance(wish, TokenCollate):
        raise ValueError(f"collate={wish!r}: expected 'pad', 'pack', or a PadCollate, PackCollate or ChunkCollate")
    return wish
