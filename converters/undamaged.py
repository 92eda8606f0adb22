"""undamaged: the samples of a store that can be restored, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastio.converters.checksum import damaged
from fastio.converters.cut import cut
from fastio.converters.scan import shown
from fastio.converters.source import Problem
from fastio.converters.text.decode import StoredText, text_field
from fastio.errors import StoreCorrupt
from fastio.store import SampleStore
from fastio.store.selected import SelectedStore
from fastio.store.values import read_values

__all__ = ["undamaged"]

_CHUNK_BYTES, _CHUNK_SAMPLES = 8 << 20, 4096
_LABEL = "label"


def undamaged(
    store: SampleStore, others: Mapping[int, str]
) -> tuple[SampleStore, np.ndarray[tuple[int], np.dtype[np.int64]], list[Problem]]:
    """
    Return a store of the undamaged samples, their indices in ``store``, and a problem for each of the others.

    ``others`` says by index what else is wrong with samples. All fields of a sample go with a damaged one, and all
    pieces of a document that was split. Raises StoreCorrupt if nothing is left.
    """
    sentences = {**others, **_differing(store)}
    is_bad = np.zeros(len(store), bool)
    is_bad[list(sentences)] = True
    field = text_field(store.schema)
    if field is not None and sentences:
        documents = StoredText(store, field, None).document_numbers()
        is_bad = np.isin(documents, documents[is_bad])
    bad, good = np.flatnonzero(is_bad), np.flatnonzero(~is_bad)
    problems = [
        Problem(key, sentences.get(index, "is another piece of a damaged document"))
        for index, key in zip(bad.tolist(), store.keys(bad), strict=True)
    ]
    if len(bad) and not len(good):
        first = problems[0]
        raise StoreCorrupt(
            f"{store.path}: nothing to unpack: all {len(store):,} samples are damaged; the first: "
            f"{shown(first.key)!r:.100}: {first.problem}"
        )
    if not len(bad):
        return store, good, []
    labels = store.column(_LABEL)[good] if _LABEL in store.schema else None
    return SelectedStore(store, good, labels), good, problems


def _differing(store: SampleStore) -> dict[int, str]:
    """Return the samples that differ from their checksums, by index, with the first field that does."""
    sentences: dict[int, str] = {}
    for field in store.schema.payload:
        sizes = store.spans(field.name, np.arange(len(store))).sizes
        for piece in cut(sizes, _CHUNK_BYTES, _CHUNK_SAMPLES):
            spans = read_values(store, field.name, np.arange(piece.start, piece.stop))
            for i in damaged(spans).tolist():
                sentences.setdefault(piece[i], f"field {field.name!r}: bytes differ from their checksum")
    return sentences
