"""Turns text into token ids and back: the tokenizer of bytes, and the protocol that it shares with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.documents import Documents

__all__ = ["ROLES", "BytesTokenizer", "Encoding", "Tokenizer", "as_ids", "gathered", "id_dtype"]

ROLES = ("bos", "eos", "pad", "unk")
_MOST_IDS = 1 << 32  # that fit into four bytes

# Documents that can be had as ids, those ids one after the other, how many each document has.
Encoding = tuple[Documents, NDArray[Any], NDArray[np.int64]]


def id_dtype(vocab_size: int | None) -> str:
    """
    Return the NumPy type string of ids: two bytes if the whole vocabulary fits, otherwise four.

    >>> id_dtype(50257), id_dtype(65536), id_dtype(65537)
    ('<u2', '<u2', '<u4')
    """
    return "<u2" if vocab_size is not None and vocab_size <= 1 << 16 else "<u4"


class Tokenizer(Protocol):
    """
    Turns documents into ids. Thread-safe.

    ``special`` gives the id of each of ROLES, or None. ``encode`` adds none of them: the packer adds bos and eos.
    """

    @property
    def vocab_size(self) -> int:
        """The number of ids, which go from 0 to one less."""
        ...

    @property
    def special(self) -> Mapping[str, int | None]:
        """The id of each role (bos, eos, pad, ...), None if the tokenizer has no such token."""
        ...

    def encode(self, documents: Documents) -> Encoding:
        """
        Return the valid documents that it has ids for, their ids one after the other (``id_dtype``), and how many
        each has.
        """
        ...

    def decode(self, ids: NDArray[Any]) -> bytes:
        """Return the text of some ids without bos and eos; the same bytes if the tokenizer preserves text."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return what the store keeps: kind, name, vocab_size, special, json (the tokenizer's own text, or None)."""
        ...


class BytesTokenizer:
    """
    Every byte of UTF-8 is an id; 256 is bos, 257 eos, 258 pad. Lossless for any bytes.

    >>> BytesTokenizer().decode(np.array([256, 104, 105, 257]))
    b'hi'
    """

    vocab_size = 259
    special: Mapping[str, int | None] = {"bos": 256, "eos": 257, "pad": 258, "unk": None}

    def encode(self, documents: Documents) -> Encoding:
        """Return the bytes as numbers."""
        return documents, gathered(documents).astype(id_dtype(self.vocab_size)), documents.sizes

    def decode(self, ids: NDArray[Any]) -> bytes:
        """Return the bytes."""
        return ids[ids < 256].astype(np.uint8).tobytes()

    def to_json(self) -> dict[str, Any]:
        """Return only its kind and its numbers."""
        numbers = {"vocab_size": self.vocab_size, "special": dict(self.special)}
        return {"kind": "bytes", "name": "bytes", **numbers, "json": None}


def gathered(documents: Documents) -> NDArray[np.uint8]:
    """Return the bytes of documents one after the other, without what is between them."""
    starts, stops = documents.starts, documents.starts + documents.sizes
    if len(starts) == 0:
        return documents.data[:0]
    if np.array_equal(starts[1:], stops[:-1]):
        return documents.data[starts[0] : stops[-1]]
    edges = np.zeros(len(documents.data) + 1, np.int8)
    np.add.at(edges, starts, 1)
    np.subtract.at(edges, stops, 1)
    inside: NDArray[np.bool_] = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
    return documents.data[inside]


def as_ids(documents: Documents, vocab_size: int | None) -> Encoding:
    """Return the documents of ids within the vocabulary, their ids and lengths."""
    limit = _MOST_IDS if vocab_size is None else min(vocab_size, _MOST_IDS)
    ids = documents.data.view(np.int64)
    bad = np.flatnonzero((ids < 0) | (ids >= limit))
    starts, sizes = documents.starts // 8, documents.sizes // 8
    if len(bad):
        owners = np.searchsorted(starts + sizes, bad, side="right")
        problems = {
            int(owner): f"has the token id {ids[at]}, expected 0 to {limit - 1:,}"
            for owner, at in zip(owners[::-1].tolist(), bad[::-1].tolist(), strict=True)
            if owner < len(starts) and starts[owner] <= at
        }
        documents = documents.without(problems)
    flat = gathered(documents).view(np.int64).astype(id_dtype(vocab_size))
    return documents, flat, documents.sizes // 8
