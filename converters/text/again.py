"""Reads and encodes the source of a text store once more, as the store says it was, for comparison."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from typing import Any

from fastio._native import ThreadPool
from fastio.converters.ahead import in_order
from fastio.converters.label_columns import ALL_OTHERS
from fastio.converters.origin import origin_of, recorded_kind
from fastio.converters.source import Chunk, Problem
from fastio.converters.text import TEXT_SOURCES, Encoder, Limits, Sequences, TextOptions, TextSource, open_text
from fastio.converters.text.decode import tokenizer_of
from fastio.converters.text.huggingface import in_our_threads
from fastio.errors import SourceError
from fastio.store import SampleStore
from fastio.types.schema import Schema

__all__ = ["TextAgain", "read_again"]


class TextAgain:
    """A source of text with the options, the tokenizer and the rule for sequences of a packed store."""

    def __init__(self, source: TextSource, encoder: Encoder) -> None:
        self._source = source
        self._encoder = encoder

    @property
    def path(self) -> str:
        """The path as the user named it."""
        return self._source.path

    @property
    def schema(self) -> Schema:
        """Tokens or text, and the label if there are labels."""
        return self._encoder.schema

    @property
    def problems(self) -> list[Problem]:
        """Problems found while scanning."""
        return list(self._source.problems)

    @property
    def classes(self) -> list[str] | None:
        """The names of the labels."""
        found: list[str] | None = self._source.metadata.get("classes")
        return found

    def chunks(self, pool: ThreadPool, jobs: int) -> Generator[Chunk, None, None]:
        """Yield all samples in order, made by ``jobs`` threads."""
        with in_our_threads(), closing(in_order(self._encoder, self._source.read(Limits(), pool), jobs=jobs)) as pieces:
            for encoded in pieces:
                yield encoded.chunk


def read_again(store: SampleStore, path: str | os.PathLike[str]) -> TextAgain:
    """Open ``path`` as the source of ``store``. Raises SourceError if the store does not say how it was made."""
    metadata = store.metadata
    origin = origin_of(metadata)
    said: dict[str, Any] = metadata.get("tokenizer") or {}
    if recorded_kind(origin) not in TEXT_SOURCES:
        raise SourceError(f"{store.path}: does not say how its text was packed, so {path} cannot be compared")
    options = TextOptions(
        split=origin.get("split"),
        text_field=origin.get("text_field"),
        label_field=origin.get("label_field"),
        max_document_bytes=origin["max_document_bytes"],
        without=(ALL_OTHERS,) if "text_field" in origin else (),  # decided when it was packed
    )
    source = open_text(path, kind=recorded_kind(origin), options=options)
    rule = said.get("options") or {}
    sequences = (
        Sequences(**{name: rule[name] for name in ("bos", "eos", "max_length", "over")}) if rule else Sequences()
    )
    encoder = Encoder(
        tokenizer_of(metadata),
        sequences,
        is_ids=source.is_ids,
        has_labels=source.has_labels,
        vocab_size=said.get("vocab_size"),
        is_per_sample=store.schema.is_per_sample,
    )
    return TextAgain(source, encoder)
