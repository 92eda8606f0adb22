"""Text beside pictures: which fields of samples these are, and how many tokens and patches samples have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset, FastSubset
from fastio.errors import SchemaError
from fastio.store.index.elements import Elements
from fastio.transforms.patches import Patchify, patches_of
from fastio.types.options import explains_names

__all__ = ["PicturedText", "pictured_text", "vision_lengths"]


@explains_names()
def vision_lengths(
    dataset: FastDataset | FastSubset, transforms: Iterable[Any], *, image_length: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """
    Return how many tokens and how many patches samples of text and pictures have, int32 ``(n,)`` each::

        tokens, patches = vision_lengths(dataset, transforms)
        packs = PackSampler(tokens, max_tokens=8192, patches=patches, max_patches=16384)
        collate = PackCollate(8192, image_token=151655)
        FastLoader(dataset, batch_sampler=packs, transforms=transforms, collate=collate)

    Both come from the index: no picture is read. ``transforms`` and ``image_length`` are those of the loader and its
    ``PackCollate``: each picture has as many tokens as the Patchify among the transforms makes of it, or
    ``image_length``; they take the place of its placeholder, one id of the sample. Without a Patchify, a picture counts
    as one patch.

    Raises SchemaError for samples without token ids or without one field of pictures, ValueError if there is neither a
    Patchify nor ``image_length``, and what ``patches_of`` raises.
    """
    if isinstance(dataset, FastSubset):
        tokens, patches = vision_lengths(dataset.dataset, transforms, image_length=image_length)
        return tokens[dataset.indices], patches[dataset.indices]
    steps, text = list(transforms), pictured_text(dataset)
    reader = dataset.readers[text.picture]
    sizes = reader.sizes()
    patchify = next((step for step in steps if isinstance(step, Patchify)), None)
    if patchify is None and image_length is None:
        raise ValueError(f"transforms={steps!r}: expected a Patchify among them, or image_length=, as in PackCollate")
    patches = np.ones(len(sizes), np.int32) if patchify is None else patches_of(sizes, steps)
    a_token = 1 if patchify is None else patchify.merged**2
    tokens = patches // a_token if image_length is None else np.full(len(sizes), image_length, np.int32)
    lengths, counts, store = dataset.lengths_of(text.ids), np.ones(len(dataset.store), np.int64), reader.store
    of_samples: tuple[NDArray[Any], NDArray[Any]] = tokens, patches
    if isinstance(store, Elements):
        counts, of_samples = store.counts, (store.sums(tokens), store.sums(patches))
    both = np.maximum(lengths - counts, 0) + of_samples[0], of_samples[1]
    return both[0].astype(np.int32), both[1].astype(np.int32)


@dataclass(frozen=True, slots=True)
class PicturedText:
    """Fields: ``ids`` with placeholders of the pictures in ``picture``, and ``beside`` them one value for each id."""

    ids: str
    beside: tuple[str, ...]
    picture: str


# A field whose lengths differ from those of the ids in more samples than this does not lie beside them; in fewer, these
# samples are damaged.
_MOST = 0.5


def pictured_text(dataset: FastDataset) -> PicturedText:
    """
    Return which fields of samples are text beside pictures: the first field of token ids, all that have as many values
    in most samples, and the only field of pictures.

    Raises SchemaError for samples that have none of these, or are no dicts.
    """
    path, schema, names = dataset.store.path, dataset.store.schema, dataset.form.payload(dataset.store.schema)
    fields = {name: schema[name] for name in names if not schema[name].is_list}
    ids = next((name for name, field in fields.items() if field.traits.is_tokens), None)
    pictures = [name for name, reader in dataset.readers.items() if reader.is_picture]
    if ids is None or len(pictures) != 1 or dataset.form.kind != "dict":
        raise SchemaError(
            f"{path}: expected samples as dicts with token ids and one field of pictures, got a {dataset.form.kind} of "
            f"{', '.join(dataset.form.names)}"
        )
    lengths = dataset.lengths_of(ids)
    beside = [name for name, field in fields.items() if field.is_loss]
    for name, field in fields.items():
        is_flat = field.traits.is_ragged and field.shape == (None,) and not field.role
        if name != ids and (is_flat or field.traits.is_tokens):
            beside += [name] if (dataset.lengths_of(name) != lengths).mean() <= _MOST else []
    return PicturedText(ids, tuple(beside), pictures[0])
