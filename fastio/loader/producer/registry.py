"""Chooses the producer for the batches of a dataset, its transforms and its collate."""

from __future__ import annotations

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.record_collate import choose_rows
from fastio.dataset.token_collate import (
    PackCollate,
    PadCollate,
    PreferenceCollate,
    TokenCollate,
    WindowCollate,
    beside_name,
)
from fastio.dataset.token_stream import TokenWindows
from fastio.errors import SchemaError
from fastio.loader.options import CollateWish
from fastio.loader.producer.device_cache import DeviceCacheProducer
from fastio.loader.producer.device_decode import DeviceDecodeProducer
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.plain import PlainProducer
from fastio.loader.producer.producer import Producer, ProducerContext, ProducerKind
from fastio.loader.producer.tokens import TokenProducer
from fastio.samplers.bucket import LengthBucketSampler
from fastio.samplers.pack import PackSampler
from fastio.transforms.vision import pictured_text

__all__ = [
    "PRODUCERS",
    "choose_collate",
    "make_producer",
    "packs_fields",
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


_MADE = ("input_ids", "attention_mask", "position_ids", "document_ids", "cu_seqlens", "max_seqlen", "lengths")


def packs_fields(dataset: FastDataset, wish: CollateWish) -> bool:
    """
    Return whether the fields of samples go into batches together, with one value for each token id: if they say what
    counts in the loss, or if ``wish`` is for token ids; a PadCollate pads fields that are all token ids each by itself.
    Raises SchemaError for fields that cannot.
    """
    if dataset.parallel is None:
        return False
    is_asked = wish == "pack" or isinstance(wish, TokenCollate)
    if isinstance(wish, PadCollate) or wish is None or wish == "pad":
        has_others = any(not reader.field.traits.is_tokens for reader in dataset.parallel)
        is_asked = dataset.token_reader is not None or (isinstance(wish, PadCollate) and has_others)
    if not is_asked:
        return False
    path, ids = dataset.store.path, dataset.reader.field.name
    names = [beside_name(reader.field) for reader in dataset.parallel]
    names += dataset.form.columns(dataset.store.schema)
    taken = next((name for name in names if name in _MADE or names.count(name) > 1), None)
    if taken is not None:
        raise SchemaError(
            f"{path}: a batch has an entry {taken!r} already, so the field of that name has no place: pack it under "
            "another name (rename=)"
        )
    for reader in dataset.parallel:
        if not reader.field.is_loss and (dataset.lengths_of(reader.field.name) != dataset.lengths).mean() > _MOST:
            raise SchemaError(
                f"{path}: most samples have more or fewer values in {reader.field.name!r} than ids in {ids!r}, so they "
                "cannot share rows: collate them by field, as in collate={...: 'pad'}"
            )
    return True


_MOST = 0.5  # of samples whose lengths differ: those of fewer are damaged


def choose_collate(dataset: FastDataset, wish: CollateWish, sampler: object) -> TokenCollate | None:
    """
    Return the collate for a dataset of token ids alone, with labels, or with fields of one value an id; None for
    others, see ``row_collates``.

    "pad" rounds to the multiple that the LengthBucketSampler counts with, and "pack" makes batches as large as the
    PackSampler plans them. Raises ValueError for a wish that the dataset or the sampler does not allow.
    """
    collate = _wished_collate(dataset, wish, sampler)
    if isinstance(sampler, PackSampler) and sampler.split is not None:
        return _of_parts(dataset, wish, collate)
    if not isinstance(sampler, PackSampler) or sampler.too_long != "cut":
        return collate
    if collate is None or collate.longest != sampler.max_tokens:
        raise ValueError(
            f"collate={wish!r}: the PackSampler cuts samples (too_long='cut'): expected collate='pack', or a "
            f"PackCollate or ChunkCollate with longest={sampler.max_tokens}"
        )
    return collate


def _of_parts(dataset: FastDataset, wish: CollateWish, collate: TokenCollate | None) -> TokenCollate:
    """Return the collate for parts of samples. Raises ValueError where they cannot be laid out."""
    said = "the PackSampler splits samples (too_long='split')"
    if isinstance(dataset, TokenWindows):
        raise ValueError(f"{said}: windows of a stream are split by its windows(size, stride=...)")
    if collate is None or collate.longest is not None:
        raise ValueError(f"collate={wish!r}: {said}: expected collate='pack', or a PackCollate without longest=")
    return collate


def _wished_collate(dataset: FastDataset, wish: CollateWish, sampler: object) -> TokenCollate | None:
    tokens = dataset.ids_reader if packs_fields(dataset, wish) else dataset.token_reader
    if tokens is None or (wish is None and not dataset.is_as_stored):
        return None
    if wish != "pack" and not isinstance(wish, TokenCollate) and isinstance(sampler, PackSampler) and sampler.rows:
        raise ValueError(
            f"collate={wish!r}: the PackSampler plans rows={sampler.rows} a batch: expected collate='pack'"
        )
    if wish is None and isinstance(dataset, TokenWindows) and dataset.store.rule.documents != "inside":
        return WindowCollate(dataset.size, dataset.store.rule.documents == "mask", tokens.pad_id)
    if wish is None or wish == "pad":
        multiple = sampler.pad_to_multiple if isinstance(sampler, LengthBucketSampler) else 1
        return PadCollate(tokens.pad_id, pad_to_multiple=multiple)
    if wish == "pack":
        if isinstance(sampler, PackSampler):
            longest = sampler.max_tokens if sampler.too_long == "cut" else None
            return PackCollate(sampler.max_tokens, tokens.pad_id, rows=sampler.rows, longest=longest)
        return PackCollate(None, tokens.pad_id)
    if wish == "preference" or isinstance(wish, PreferenceCollate):
        choose_rows(dataset.store.schema, dataset.form.names, wish, where=dataset.store.path)  # says what is missing
    if isinstance(wish, PackCollate) and wish.image_token is not None:
        pictured_text(dataset)  # says what is missing: samples with pictures are no token ids alone
    if not isinstance(wish, TokenCollate):
        raise ValueError(f"collate={wish!r}: expected 'pad', 'pack', or a PadCollate, PackCollate or ChunkCollate")
    return wish
