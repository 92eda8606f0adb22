"""Turns a store of tokens or text back into documents: its tokenizer, its samples, pieces joined again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.source import damaged, split_by_bytes
from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.tokenizer import BytesTokenizer, Tokenizer
from fastio.errors import FastioError, SourceError, StoreCorrupt
from fastio.store import SampleStore
from fastio.store.protocol import read_values
from fastio.types.schema import Field
from fastio.types.units import counted

__all__ = ["Document", "StoredText", "probe_words", "tokenizer_of"]

_CHUNK_BYTES, _CHUNK_SAMPLES = 8 << 20, 4096
_PIECE = re.compile(r"(.*)#(\d+)\Z", re.DOTALL)


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """Return the tokenizer in a store; None for text and for ids without one. Raises SourceError for a broken one."""
    said = metadata.get("tokenizer") or {}
    if said.get("kind") == "bytes":
        return BytesTokenizer()
    if said.get("kind") == "huggingface":
        try:
            return HuggingFaceTokenizer(str(said["json"]), str(said["name"]), dict(said["special"]))
        except FastioError:
            raise
        except Exception as exc:  # the library raises no other class for what is no tokenizer
            raise SourceError(f"the tokenizer {said.get('name')!r} of the store cannot be used: {exc}") from exc
    return None


def probe_words(exact: int, probed: int, documents: int) -> str:
    """
    Say how many of the documents that were decoded again when packing gave the same bytes.

    >>> probe_words(17, 17, 3000)
    'a sample of 17 of the 3,000 documents decoded to the same bytes'
    >>> probe_words(1, 2, 2)
    'of the 2 documents, 1 decoded to the same bytes'
    """
    total = counted(documents, "document")
    if probed < documents:
        sample = f"a sample of {probed:,} of the {total}"
    else:
        sample = f"all {total}" if exact == probed and documents > 1 else f"the {total}"
    result = "decoded to the same bytes"
    return f"{sample} {result}" if exact == probed else f"of {sample}, {exact:,} {result}"


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text, or its ids if nobody knows their text; and the position of its first sample."""

    key: str
    text: bytes | None
    ids: NDArray[Any] | None
    sample: int


@dataclass(frozen=True, slots=True)
class StoredText:
    """A store of tokens or text, read as documents."""

    store: SampleStore
    field: Field
    tokenizer: Tokenizer | None

    @classmethod
    def of(cls, store: SampleStore, field: Field) -> StoredText:
        """Open it with the store's tokenizer. Raises SourceError if its library is missing."""
        return cls(store, field, tokenizer_of(store.metadata))

    @property
    def options(self) -> Mapping[str, Any]:
        """How the sequences were made."""
        return (self.store.metadata.get("tokenizer") or {}).get("options") or {}

    def documents(self) -> Iterator[Document]:
        """Yield all documents in order, with split ones joined. Raises StoreCorrupt if a checksum differs."""
        pieces, values = _Pieces(is_split=bool(self.options.get("split"))), list[NDArray[Any]]()
        document, first = "", 0
        for index, key, value in self._samples():
            if pieces.begins_document(key):
                if values:
                    yield self._document(document, values, first)
                values, document, first = [], pieces.document, index
            values.append(value)
        if values:
            yield self._document(document, values, first)

    def document_numbers(self) -> NDArray[np.int64]:
        """Return the number of the document that each sample belongs to, from 0, (n,)."""
        pieces = _Pieces(is_split=bool(self.options.get("split")))
        begins = np.zeros(len(self.store), np.int64)
        for start in range(0, len(begins), _CHUNK_SAMPLES):
            chunk = np.arange(start, min(start + _CHUNK_SAMPLES, len(begins)))
            begins[chunk] = [pieces.begins_document(key) for key in self.store.keys(chunk)]
        return np.cumsum(begins) - 1

    def preview(self, value: NDArray[np.uint8], size: int) -> str:
        """Return the beginning of one sample as people read it."""
        if self.field.traits.is_text:
            return value[: 4 * size].tobytes().decode("utf-8", "replace")[:size]
        ids = value.view(self.field.dtype)[:size]
        if self.tokenizer is None:
            return " ".join(map(str, ids.tolist()))
        return self.tokenizer.decode(ids).decode("utf-8", "replace")[:size]

    def _samples(self) -> Iterator[tuple[int, str, NDArray[Any]]]:
        sizes = self.store.value_bytes(self.field.name)
        for piece in split_by_bytes(sizes, _CHUNK_BYTES, _CHUNK_SAMPLES):
            indices = np.arange(piece.start, piece.stop)
            keys, spans = self.store.keys(indices), read_values(self.store, self.field.name, indices)
            for i in damaged(spans):
                raise StoreCorrupt(
                    f"{self.store.path}: {keys[i]!r}, field {self.field.name!r}: bytes differ from their checksum; "
                    f"`fastio verify` lists all such samples"
                )
            yield from zip(piece, keys, (view.view(self.field.dtype) for view in spans.views()), strict=True)

    def _document(self, key: str, pieces: list[NDArray[Any]], sample: int) -> Document:
        repeated = self.options.get("overlap", 0)  # ids of a piece that end the one before
        values = np.concatenate([pieces[0], *(piece[repeated:] for piece in pieces[1:])])
        if self.field.traits.is_text:
            return Document(key, values.tobytes(), None, sample)
        if self.tokenizer is None:
            return Document(key, None, values, sample)
        bos = int(bool(self.options.get("bos")) and len(values) > 0 and values[0] == self.tokenizer.special["bos"])
        stop = len(values)
        if self.options.get("eos") and stop > bos and values[-1] == self.tokenizer.special["eos"]:
            stop -= 1
        return Document(key, self.tokenizer.decode(values[bos:stop]), None, sample)


class _Pieces:
    """Tells by their keys, in order, which samples are pieces of one document; ``document`` is the key of the last."""

    def __init__(self, *, is_split: bool) -> None:
        self._is_split = is_split
        self._count = 0  # pieces of a split document so far
        self.document = ""

    def begins_document(self, key: str) -> bool:
        """Take the next key, and return whether its sample begins a document."""
        match = _PIECE.match(key) if self._is_split else None
        if match is None:
            self.document, self._count = key, 0
            return True
        number = int(match[2])
        if self._count and number == self._count and match[1] == self.document:
            self._count += 1
            return False
        self.document, self._count = (match[1], 1) if number == 0 else (key, 0)
        return True
