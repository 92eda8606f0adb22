"""TextTokens: makes token ids of the text in one field of samples that have others, such as captions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.record_arrays import as_array
from fastio.converters.record_problem import UnfitError
from fastio.converters.source import TextCounts
from fastio.converters.text.documents import Documents
from fastio.converters.text.encode import Encoder, Sequences
from fastio.converters.text.huggingface import in_our_threads
from fastio.converters.text.tokenizer import Tokenizer, id_dtype
from fastio.errors import SchemaError, SourceError
from fastio.types.schema import TOKENS, Field

__all__ = ["TextTokens"]


class TextTokens:
    """
    A tokenizer and what a sequence of its ids is, for all fields of token ids of one store.

    Give it to ``encode_values`` and to ``fastio.Writer``, and keep ``record`` in the store's ``metadata["tokenizer"]``:
    ``pad`` and decoding use it. One text is one sequence, so ``Sequences(over="split")`` raises SourceError, and so
    does a bos or eos that the tokenizer lacks. Thread-safe; pickled with its tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, sequences: Sequences | None = None) -> None:
        self.tokenizer = tokenizer
        self.sequences = sequences or Sequences()
        if self.sequences.over == "split":
            raise SourceError("a text with other fields is one sequence: truncate it, or refuse longer ones")
        for role in ("bos", "eos"):
            if getattr(self.sequences, role) and tokenizer.special.get(role) is None:
                raise SourceError(f"the tokenizer has no {role} token: name it with --special {role}=TOKEN")
        self._encoder = Encoder(tokenizer, self.sequences)
        self._lock = threading.Lock()
        self._cut = {"documents": 0, "tokens": 0}
        self._options: dict[str, Any] = {**self.sequences.to_json(), "documents": 0, "cut": self._cut}
        self._record: dict[str, Any] = {**self._encoder.to_json(), "options": self._options}

    def field(self, name: str) -> Field:
        """Return the field of this name for the ids: of 16 bits if the vocabulary fits, otherwise of 32."""
        return Field(name, TOKENS, id_dtype(self.tokenizer.vocab_size), (None,))

    @property
    def record(self) -> dict[str, Any]:
        """
        Return JSON for the store: the tokenizer, the rules, and how many texts were encoded and truncated.

        It is one object, whose counts go on as texts are encoded: keep it in the metadata from the beginning.
        """
        return self._record

    @property
    def counts(self) -> TextCounts:
        """What ``record`` counts, so far."""
        with self._lock:
            return TextCounts(self._options["documents"], self._cut["documents"], self._cut["tokens"])

    def value_encoder(self, field: Field) -> Callable[[Any], bytes | str]:
        """
        Return the function that checks one value: text stays text for ``encoded``, ids become bytes.

        It raises UnfitError for other values, and this method SchemaError if the field's dtype is too narrow.
        """
        if np.dtype(field.dtype).itemsize < np.dtype(self.field(field.name).dtype).itemsize:
            raise SchemaError(
                f"field {field.name!r}: the tokenizer has {self.tokenizer.vocab_size:,} ids, more than tokens16 holds: "
                "make it tokens"
            )

        def encode(value: Any) -> bytes | str:
            if not isinstance(value, str):
                return as_array(field, value).tobytes()
            if not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError as exc:
                    raise UnfitError(f"cannot be written as UTF-8: character {exc.start} is a lone surrogate") from exc
            return str(value)

        return encode

    def encoded(self, field: Field, parts: Sequence[bytes | str]) -> tuple[list[bytes], dict[int, str]]:
        """Return the ids of every text among ``parts`` as bytes, and what is wrong with a text, by position."""
        done = [b"" if isinstance(part, str) else part for part in parts]
        at = [i for i, part in enumerate(parts) if isinstance(part, str)]
        if not at:
            return done, {}
        documents = _documents([str(parts[i]) for i in at])
        with in_our_threads():
            kept, *flat = self.tokenizer.encode(documents)
        problems = {at[int(each.key)]: f"has a field {field.name!r} that {each.problem}" for each in kept.problems}
        places = [at[int(key)] for key in kept.keys]
        ids, lengths = flat[0], flat[1]
        rule, cut = self.sequences, np.zeros(len(places), np.int64)
        if rule.max_length is not None:
            over = np.maximum(lengths + rule.bos + rule.eos - rule.max_length, 0)
            if rule.over == "truncate":
                cut = over
            else:
                advice = f"more than {rule.max_length:,}: truncate such texts, or allow more"
                for i in np.flatnonzero(over).tolist():
                    total = lengths[i] + rule.bos + rule.eos
                    problems[places[i]] = f"has a field {field.name!r} that has {total:,} tokens, {advice}"
        ids, lengths = self._encoder.framed((ids, lengths), cut)
        stops = np.cumsum(lengths).tolist()
        cast = ids.astype(field.dtype)
        for place, start, stop in zip(places, [0, *stops], stops, strict=False):
            done[place] = b"" if place in problems else cast[start:stop].tobytes()
        self._count(len(places), cut)
        return done, problems

    def _count(self, texts: int, cut: NDArray[np.int64]) -> None:
        with self._lock:
            self._options["documents"] += texts
            self._cut["documents"] += int(np.count_nonzero(cut))
            self._cut["tokens"] += int(cut.sum())

    def __getstate__(self) -> tuple[Tokenizer, Sequences]:
        return self.tokenizer, self.sequences

    def __setstate__(self, state: tuple[Tokenizer, Sequences]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def _documents(texts: Sequence[str]) -> Documents:
    encoded = [text.encode() for text in texts]
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    data = np.frombuffer(b"".join(encoded), np.uint8)
    keys = [str(i) for i in range(len(texts))]
    return Documents(keys, data, np.cumsum(sizes) - sizes, sizes, None, [], 0)
