"""Sources made of others: what they pass on, and text in their fields as token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastio._native import ThreadPool
from fastio.converters.fields.types import FieldChoice
from fastio.converters.fields.values import joined
from fastio.converters.sources.source import Chunk, PassedOn, Scanned, Source, TextCounts
from fastio.converters.text.decode import tokenizer_of
from fastio.converters.text.encode import Sequences, TextTokens
from fastio.errors import SourceError
from fastio.machine import available_cpus
from fastio.store.kinds.scan import Problem
from fastio.types.field_types import field_of, type_of
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "DerivedSource",
    "TokenizedSource",
    "as_text",
    "tokenized_as",
]


class DerivedSource(PassedOn):
    """Whatever of ``Source`` is that of ``source``; a subclass adds what it changes."""

    __slots__ = ()

    source: Source

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def left_out(self) -> Sequence[Problem]:
        return self.source.left_out

    @property
    def is_stored(self) -> bool:
        return self.source.is_stored

    def files(self) -> Iterable[str]:
        return self.source.files()

    def __len__(self) -> int:
        return len(self.source)

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        return self.source.chunks(max_bytes, max_samples)


# TokenizedSource: a source whose text, in some fields, goes into the store as token ids.


def as_text(choices: Sequence[FieldChoice]) -> tuple[list[FieldChoice], dict[str, Field]]:
    """Return the choices with text in place of token ids, and the fields of token ids by name."""
    of_tokens = {
        choice.name: choice.field for choice in choices if choice.field is not None and choice.field.traits.is_tokens
    }
    if not of_tokens:
        raise SourceError(
            "--tokenizer makes token ids of text in a field: name it, as in --field caption=caption:tokens"
        )
    text = [
        replace(choice, field=field_of(choice.name, "text")) if choice.name in of_tokens else choice
        for choice in choices
    ]
    return text, of_tokens


def tokenized_as(metadata: Mapping[str, Any], source: Source) -> Source:
    """Return the source with the token ids that a store of this metadata has, which was packed from it."""
    record: Mapping[str, Any] = metadata.get("tokenizer") or {}
    tokenizer, options = tokenizer_of(metadata), record.get("options") or {}
    if tokenizer is None or not record.get("fields") or "tokenizer" in source.metadata:
        return source
    sequences = Sequences.from_json(options)
    fields = {name: field_of(name, type_) for name, type_ in record["fields"].items()}
    return TokenizedSource(source, fields, TextTokens(tokenizer, sequences, jobs=available_cpus()))


@dataclass(frozen=True, slots=True)
class TokenizedSource(DerivedSource):
    """
    The samples of ``source`` with the token ids of their text in ``fields``. Satisfies ``Source``.

    Text that the tokenizer refuses, or that is too long, is a problem of its sample.
    """

    source: Source
    fields: Mapping[str, Field]
    tokens: TextTokens

    @property
    def schema(self) -> Schema:
        """The source's fields, of token ids where they are made."""
        return Schema(tuple(self.fields.get(each.name, each) for each in self.source.schema.fields))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """
        The source's, and the tokenizer with the names of its fields. What became of texts is not counted here: it
        depends on what is read, and stands in the chunks.
        """
        fields = {name: type_of(field) for name, field in self.fields.items()}
        record = TextCounts(0, 0, 0).within(self.tokens.record)
        return {**self.source.metadata, "tokenizer": {**record, "fields": fields}}

    def scanned(self, chunk: range) -> Scanned:
        """Return keys, columns and the sizes of the text."""
        return self.source.scanned(chunk)

    def shuffled(self, seed: int) -> TokenizedSource:
        """Return the same samples in an order drawn from their names and the seed."""
        return replace(self, source=self.source.shuffled(seed))

    def begin(self, chunk: range, pool: ThreadPool | None = None) -> Callable[[], Chunk]:
        """Begin to read one piece; the result waits for it and makes the ids."""
        finish = self.source.begin(chunk, pool)
        return lambda: self._tokenized(finish())

    def _tokenized(self, chunk: Chunk) -> Chunk:
        batch, before = chunk.batch, self.tokens.counts
        spans: dict[str, Spans] = dict(batch.spans)
        problems: dict[int, str] = {}
        for name, field in self.fields.items():
            texts: list[bytes | str] = []
            for position, view in enumerate(spans[name].views()):
                try:
                    texts.append(str(view.tobytes(), "utf-8"))
                except UnicodeDecodeError as exc:
                    texts.append("")
                    problems.setdefault(position, f"has a field {name!r} that is not UTF-8: byte {exc.start}")
            encoded = joined(field, texts, {}, tokenizer=self.tokens)
            assert encoded.spans is not None
            spans[name] = encoded.spans
            for position, sentence in encoded.problems.items():
                problems.setdefault(position, sentence)
        batch = replace(batch, spans=spans)
        counts = zip(self.tokens.counts, before, strict=True)
        chunk = replace(chunk, batch=batch, texts=TextCounts(*(after - first for after, first in counts)))
        if not problems:
            return chunk
        named = [Problem(batch.keys[i], problems[i]) for i in sorted(problems)]
        good = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
        return replace(chunk, batch=batch.at(good), problems=[*chunk.problems, *named])
