"""PicturedChats: the rows of a table of chats with pictures, whose chats become token ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.sources.chat_forms import PREFERENCES, ChatError, document_of
from fastio.converters.sources.derived import DerivedSource
from fastio.converters.sources.source import Chunk, Scanned, Source, TextCounts
from fastio.converters.text.chat import ChatEncoder
from fastio.converters.text.chat_template import ChatTemplate
from fastio.converters.text.decode import tokenizer_of
from fastio.converters.text.encode import Sequences
from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.image_token import ImageToken
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem
from fastio.store.protocol import SampleBatch
from fastio.types.schema import Field, Schema

__all__ = ["PicturedChats", "chats_again"]

_OF_TABLE = ("table", "files")  # of the metadata, which say how to write a table whose chats are not kept


@dataclass(frozen=True, slots=True)
class PicturedChats(DerivedSource):
    """
    The samples of ``source``, a table that was opened with the option ``chat``: its parts of chats, fields of JSON, as
    the fields "tokens" and "loss" that ``encoder`` makes of them. Satisfies ``Source``.

    A chat that the encoder refuses, or that has other places for pictures than pictures, is a problem of its sample.
    """

    source: Source
    encoder: ChatEncoder

    def __post_init__(self) -> None:
        form = self.source.metadata["source"]["form"]
        if form in PREFERENCES:
            raise SourceError(
                f"{self.path}: has preferences ({form}), which are packed without pictures: --without COLUMN leaves "
                "these out"
            )
        self._pictures()  # raises

    @property
    def _columns(self) -> Mapping[str, str]:
        """The column of each part of a chat, which is a field of that name."""
        columns: Mapping[str, str] = self.source.metadata["source"]["parts"]
        return columns

    @property
    def schema(self) -> Schema:
        """The source's fields with token ids, and what of them counts in the loss, in place of the parts of chats."""
        fields = [each for each in self.source.schema.fields if each.name not in self._columns]
        pictures = [each for each in fields if each.element.traits.is_picture]
        others = [each for each in fields if not each.element.traits.is_picture]
        of_chats = self.encoder.schema
        return Schema((*pictures, *of_chats.fields, *others), is_per_sample=of_chats.is_per_sample)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The source's, but for how to write its table; the tokenizer, the template, and what counts in the loss."""
        record = {**self.encoder.to_json(), "options": self.encoder.sequences.to_json()}
        said = {name: value for name, value in self.source.metadata.items() if name not in _OF_TABLE}
        return {**said, "tokenizer": TextCounts(0, 0, 0).within(record), **self.encoder.record}

    def scanned(self, chunk: range) -> Scanned:
        """Return keys, columns and the sizes of pictures and chats as they are in the source."""
        return self.source.scanned(chunk)

    def shuffled(self, seed: int) -> PicturedChats:
        """Return the same samples in an order drawn from their names and the seed."""
        return replace(self, source=self.source.shuffled(seed))

    def begin(self, chunk: range, pool: ThreadPool | None = None) -> Callable[[], Chunk]:
        """Begin to read one piece; the result waits for it and makes the ids."""
        finish = self.source.begin(chunk, pool)
        return lambda: self._encoded(finish())

    def _encoded(self, chunk: Chunk) -> Chunk:
        batch = chunk.batch
        documents, where, problems = list[bytes](), list[int](), dict[int, str]()
        form, counts = self.source.metadata["source"]["form"], self._counts(batch)
        parts = [self._values(batch, name) for name in self._columns]
        for i, row in enumerate(zip(*parts, strict=True)):
            values = {part: (column, row[k]) for k, (part, column) in enumerate(self._columns.items())}
            try:
                documents.append(document_of(form, values, int(counts[i])))
            except ChatError as exc:
                problems[i] = str(exc)
            else:
                where.append(i)
        chats = self.encoder.encoded(documents)
        problems |= {where[i]: sentence for i, sentence in chats.problems.items()}
        good = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
        kept = batch.at(good)
        spans = {name: each for name, each in kept.spans.items() if name not in self._columns}
        lists = {name: each for name, each in kept.lists.items() if name not in self._columns}
        texts = TextCounts(len(good), sum(map(bool, chats.cut)), sum(chats.cut))
        named = [Problem(batch.keys[i], problems[i]) for i in sorted(problems)]
        batch = replace(kept, spans={**spans, **chats.spans}, lists=lists)
        return replace(chunk, batch=batch, problems=[*chunk.problems, *named], texts=texts)

    def _values(self, batch: SampleBatch, part: str) -> list[Any]:
        """The part of a chat in each row, which the source has as JSON, or as text that may be missing."""
        if not self.source.schema[part].is_list:
            return [json.loads(view.tobytes()) for view in batch.spans[part].views()]
        texts = iter([view.tobytes().decode() for view in batch.lists[part].spans.views()])
        return [next(texts) if count else None for count in batch.lists[part].counts.tolist()]

    def _pictures(self) -> Field:
        """The field of the pictures that chats speak of. Raises SourceError unless it is one."""
        fields = [each for each in self.source.schema.payload if each.element.traits.is_image]
        if len(fields) == 1:
            return fields[0]
        names = " and ".join(repr(each.name) for each in fields)
        found = f"pictures in the fields {names}" if fields else "no column of pictures"
        raise SourceError(
            f"{self.path}: has {found}, expected one field of them for the places in chats: name it, as in --field "
            "images=COLUMN:image[*], and leave the other columns of pictures out (--without COLUMN)"
        )

    def _counts(self, batch: SampleBatch) -> NDArray[np.int64]:
        """How many pictures each sample has."""
        field = self._pictures()
        return batch.lists[field.name].counts if field.is_list else np.ones(len(batch.keys), np.int64)


def chats_again(metadata: Mapping[str, Any], source: Source) -> Source:
    """Return a table of chats with the token ids that a store of this metadata has, which was packed from it."""
    said = metadata.get("chat") or {}
    if "image" not in said or "parts" not in source.metadata["source"]:
        return source
    tokenizer = tokenizer_of(metadata)
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    encoder = ChatEncoder(
        tokenizer,
        ChatTemplate.from_json(said),
        said["loss"],
        Sequences.from_json(metadata["tokenizer"]["options"]),
        image=ImageToken.from_json(said["image"]),
    )
    return PicturedChats(source, encoder)
