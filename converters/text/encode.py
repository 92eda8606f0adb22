"""Turns documents into samples of a store: tokenised, with bos and eos, within the longest sequence allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio.converters.fields.arrays import UnfitError, as_array
from fastio.converters.packing.pipeline import in_order
from fastio.converters.sources.documents import Documents
from fastio.converters.sources.places import places_of
from fastio.converters.sources.source import Chunk, DocumentCounts, TextCounts
from fastio.converters.text.huggingface import in_our_threads
from fastio.converters.text.tokenizer import ROLES, Encoding, Tokenizer, as_ids, id_dtype
from fastio.errors import SchemaError, SourceError
from fastio.store.protocol import SampleBatch
from fastio.store.token_files import CONTINUES, RUN_BYTES
from fastio.types.schema import COLUMN, TEXT, TOKENS, Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "Encoder",
    "Sequences",
    "TextTokens",
    "checked",
]


TEXT_FIELD = Field("text", TEXT, "|u1", (None,))
LABEL_FIELD = Field("label", COLUMN, "<i8", ())
CONTINUES_FIELD = Field(CONTINUES, COLUMN, "|u1", ())

_PROBED, _PROBED_BYTES = 16, 1 << 14  # documents of each piece that are decoded again, and the longest of them

_Flat = tuple[NDArray[Any], NDArray[np.int64]]  # ids one after the other, how many each document has


@dataclass(frozen=True, slots=True)
class Sequences:
    """
    What a sequence of ids is: ``bos`` + the document + ``eos``, at most ``max_length`` ids in total.

    A longer one is a problem (``over`` is "refuse"), loses the surplus ids before eos ("truncate"), or is cut every
    ``max_length`` ids into separate samples ("split": only the first has bos, only the last has eos). Each of these but
    the first begins with the last ``overlap`` ids of the one before.

    With ``over`` "concat", sequences are a stream of ids for ``TokenStream``: of any length, in samples of at most
    8,192 bytes, and a column "continues" says which of them go on with the sequence of the one before.
    """

    bos: bool = False
    eos: bool = False
    max_length: int | None = None
    over: Literal["refuse", "truncate", "split", "concat"] = "refuse"
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.overlap and self.over != "split":
            raise SourceError("an overlap is of samples that a document is split into: add --too-long split")
        if self.overlap and self.max_length is not None and not 0 <= self.overlap < self.max_length:
            raise SourceError(f"an overlap of {self.overlap} ids, expected less than --max-length {self.max_length}")
        if self.max_length is not None and self.max_length <= self.bos + self.eos:
            raise SourceError(f"a length of {self.max_length} leaves no room for text besides bos and eos")
        if self.over == "concat":
            if self.max_length is not None:
                raise SourceError("a stream has documents of any length: drop --max-length, or --concat")
            return
        if self.max_length is None and self.over != "refuse":
            raise SourceError(f"to {self.over} needs a length: add --max-length N")

    def most(self, item_bytes: int) -> int | None:
        """The most ids of a sample, each of which takes ``item_bytes``."""
        return RUN_BYTES // item_bytes if self.over == "concat" else self.max_length

    def to_json(self) -> dict[str, Any]:
        """A plain structure for the store's metadata."""
        rule = {"bos": self.bos, "eos": self.eos, "max_length": self.max_length, "over": self.over}
        return {**rule, "overlap": self.overlap} if self.overlap else rule

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> Sequences:
        """The rule of a store's metadata."""
        return cls(rule["bos"], rule["eos"], rule["max_length"], rule["over"], rule.get("overlap", 0))


@dataclass(frozen=True, slots=True)
class Encoder:
    """
    Turns documents into samples; thread-safe.

    Without a tokenizer, samples are UTF-8, or from a source of ids, those ids, which must be below ``vocab_size`` if
    that is known. ``is_per_sample`` is the schema's: whether a store keeps the ids of each sample by themselves.
    """

    tokenizer: Tokenizer | None
    sequences: Sequences
    is_ids: bool = False
    has_labels: bool = False
    vocab_size: int | None = None
    is_per_sample: bool = False

    @property
    def schema(self) -> Schema:
        """Tokens or text, and the label if there are labels."""
        field = TEXT_FIELD
        if self.tokenizer is not None or self.is_ids:
            field = Field("tokens", TOKENS, id_dtype(self._vocabulary), (None,))
        fields = [field, *([LABEL_FIELD] if self.has_labels else []), *([CONTINUES_FIELD] if self._is_stream else [])]
        return Schema(tuple(fields), is_per_sample=self.is_per_sample)

    @property
    def _is_stream(self) -> bool:
        return self.sequences.over == "concat"

    @property
    def _vocabulary(self) -> int | None:
        return self.tokenizer.vocab_size if self.tokenizer is not None else self.vocab_size

    @property
    def record(self) -> dict[str, Any]:
        """What a store keeps besides the tokenizer: nothing."""
        return {}

    @property
    def special(self) -> Mapping[str, int | None]:
        """The tokenizer's special ids."""
        return {} if self.tokenizer is None else self.tokenizer.special

    def to_json(self) -> dict[str, Any]:
        """Return the tokenizer as stored; for ids without one, what is known."""
        if self.tokenizer is not None:
            return self.tokenizer.to_json()
        special = dict.fromkeys(ROLES)
        return {"kind": "ids", "name": None, "vocab_size": self.vocab_size, "special": special, "json": None}

    def __call__(self, documents: Documents) -> Chunk:
        """Check, tokenise and cut one piece. The result counts what became of its documents."""
        found = len(documents.keys) + len(documents.problems)
        flat: _Flat | None = None
        if self.is_ids:
            documents, flat = _without_empty(as_ids(documents, self._vocabulary))
        else:
            documents = checked(documents)
            if self.tokenizer is not None:
                documents, flat = _without_empty(self.tokenizer.encode(documents))
        if flat is None:
            return self._as_text(documents, found)
        return self._as_tokens(documents, flat, found)

    def _as_text(self, documents: Documents, found: int) -> Chunk:
        spans = Spans.of(documents.data, documents.starts, documents.sizes)
        columns = {} if documents.labels is None else {"label": documents.labels}
        chunk = Chunk(SampleBatch(documents.keys, {"text": spans}, columns), documents.problems)
        return self._counted(documents, chunk, found, tokens=0)

    def _as_tokens(self, documents: Documents, flat: _Flat, found: int) -> Chunk:
        rule = self.sequences
        limit = rule.most(flat[0].itemsize)
        probed = (0, 0) if self.is_ids or self.tokenizer is None else _probe(self.tokenizer, documents, flat)
        if limit is not None and rule.over == "refuse":
            total = flat[1] + rule.bos + rule.eos
            ways = "--too-long truncate cuts such documents, --too-long split makes several samples of each"
            advice = f"more than {limit:,}: {ways}"
            long = {i: f"has {total[i]:,} tokens, {advice}" for i in np.flatnonzero(total > limit).tolist()}
            documents, flat = _without(documents, flat, long)
        cut = np.zeros(len(documents.keys), np.int64)
        if limit is not None and rule.over == "truncate":
            cut = np.maximum(flat[1] - (limit - rule.bos - rule.eos), 0)
        ids, lengths = self.framed(flat, cut)
        keys, labels, sizes = list(documents.keys), documents.labels, lengths
        pieces, step = np.ones(len(keys), np.int64), 0
        if limit is not None and rule.over in ("split", "concat"):
            step = limit - rule.overlap
            pieces = np.maximum(-(-(lengths - rule.overlap) // step), 1)
            keys, sizes = _piece_keys(keys, pieces), _piece_sizes(lengths, pieces, limit, step)
            labels = None if labels is None else np.repeat(labels, pieces)
        data = np.ascontiguousarray(ids).view(np.uint8)
        number = np.arange(len(sizes)) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # of a sample in its document
        starts = np.repeat(np.cumsum(lengths) - lengths, pieces) + number * step
        spans = Spans.of(data, starts * ids.itemsize, sizes * ids.itemsize)
        columns: dict[str, NDArray[Any]] = {} if labels is None else {"label": labels}
        if self._is_stream:
            continues = np.ones(len(keys), np.uint8)
            continues[np.cumsum(pieces) - pieces] = 0
            columns[CONTINUES] = continues
        chunk = Chunk(SampleBatch(keys, {"tokens": spans}, columns), documents.problems)
        return self._counted(documents, chunk, found, tokens=len(ids), cut=cut, pieces=pieces, probed=probed)

    def framed(self, flat: _Flat, cut: NDArray[np.int64]) -> _Flat:
        """Return the ids with bos and eos around each document, without the ``cut`` last ones of it."""
        ids, lengths = flat
        bos, eos = int(self.sequences.bos), int(self.sequences.eos)
        kept = lengths - cut
        if cut.any():
            inside = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            ids = ids[inside < np.repeat(kept, lengths)]
        if not bos + eos:
            return ids, kept
        total = kept + bos + eos
        ends = np.cumsum(total)
        framed = np.empty(int(total.sum()), ids.dtype)
        is_text = np.ones(len(framed), bool)
        if bos:
            framed[ends - total] = self._id("bos")
            is_text[ends - total] = False
        if eos:
            framed[ends - 1] = self._id("eos")
            is_text[ends - 1] = False
        framed[is_text] = ids
        return framed, total

    def _id(self, role: str) -> int:
        found = self.special.get(role)
        if found is None:
            raise SourceError(f"the tokenizer has no {role} token: name it with --special {role}=TOKEN")
        return found

    def _counted(
        self,
        documents: Documents,
        chunk: Chunk,
        found: int,
        *,
        tokens: int,
        cut: NDArray[np.int64] | None = None,
        pieces: NDArray[np.int64] | None = None,
        probed: tuple[int, int] = (0, 0),
    ) -> Chunk:
        if len(documents.keys) + len(documents.problems) != found:
            raise SourceError(
                f"{found} documents were read, {len(documents.keys)} tokenised and {len(documents.problems)} "
                "refused. Nothing is kept; please report this"
            )
        counts = DocumentCounts(
            documents=len(documents.keys),
            samples=len(chunk.batch.keys),
            tokens=tokens,
            cut_documents=0 if cut is None else int(np.count_nonzero(cut)),
            cut_tokens=0 if cut is None else int(cut.sum()),
            split_documents=0 if pieces is None else int(np.count_nonzero(pieces > 1)),
            probed_documents=probed[0],
            exact_documents=probed[1],
            read_bytes=documents.read_bytes,
            text_bytes=0 if self.is_ids else int(documents.sizes.sum()),
            blank_lines=len(documents.blank_lines),
        )
        shortened = [] if cut is None else [documents.keys[i] for i in np.flatnonzero(cut).tolist()]
        return replace(chunk, documents=counts, blank_lines=documents.blank, cut=places_of(shortened))


def _without(documents: Documents, flat: _Flat, problems: Mapping[int, str]) -> tuple[Documents, _Flat]:
    if not problems:
        return documents, flat
    ids, lengths = flat
    good = np.ones(len(lengths), bool)
    good[list(problems)] = False
    return documents.without(problems), (ids[np.repeat(good, lengths)], lengths[good])


def _without_empty(encoding: Encoding) -> tuple[Documents, _Flat]:
    """Documents that the tokenizer leaves nothing of are problems."""
    documents, *flat_ = encoding
    flat: _Flat = (flat_[0], flat_[1])
    return _without(documents, flat, {int(i): "has no tokens" for i in np.flatnonzero(flat[1] == 0)})


def _probe(tokenizer: Tokenizer, documents: Documents, flat: _Flat) -> tuple[int, int]:
    """How many documents were decoded again, some of every piece, and how many of them came back byte by byte."""
    count = len(documents.keys)
    chosen = [i for i in range(0, count, max(1, count // _PROBED)) if documents.sizes[i] <= _PROBED_BYTES]
    ends = np.cumsum(flat[1])
    exact = 0
    for i in chosen:
        text = documents.data[documents.starts[i] : documents.starts[i] + documents.sizes[i]].tobytes()
        exact += tokenizer.decode(flat[0][ends[i] - flat[1][i] : ends[i]]) == text
    return len(chosen), exact


def _piece_keys(keys: list[str], pieces: NDArray[np.int64]) -> list[str]:
    """Keys of the samples: ``key`` of a whole document, ``key#0``, ``key#1``, ... of one in pieces."""
    if int(pieces.sum()) == len(keys):
        return keys
    return [
        name
        for key, count in zip(keys, pieces.tolist(), strict=True)
        for name in ([key] if count == 1 else [f"{key}#{i}" for i in range(count)])
    ]


def _piece_sizes(lengths: NDArray[np.int64], pieces: NDArray[np.int64], limit: int, step: int) -> NDArray[np.int64]:
    """Sizes of samples that begin ``step`` ids after one another in their document."""
    sizes = np.full(int(pieces.sum()), limit, np.int64)
    sizes[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * step
    return sizes


# Checks that documents are text: valid UTF-8 without NUL, and not empty.


def checked(documents: Documents) -> Documents:
    """Return the documents that are text; the others become problems with a sentence each."""
    where = f" in the field {documents.field!r}" if documents.field else ""
    empty = f"has no text{where}" if where else "is empty"
    problems = {int(i): empty for i in np.flatnonzero(documents.sizes == 0)}
    if not _all_valid(documents):
        data = documents.data
        for i, (start, size) in enumerate(zip(documents.starts.tolist(), documents.sizes.tolist(), strict=True)):
            sentence = _sentence(data[start : start + size].tobytes(), where)
            if sentence:
                problems[i] = sentence
    return documents.without(problems)


def _all_valid(documents: Documents) -> bool:
    """
    Whether nothing is wrong with any document, looking at all of them at once.

    The data as a whole being valid says it of each document, if none begins or ends within a character.
    """
    data, starts = documents.data, documents.starts
    if not data.all():
        return False
    try:
        str(data.data, "utf-8")
    except UnicodeDecodeError:
        return False
    stops = starts + documents.sizes
    edges = np.concatenate((starts[documents.sizes > 0], stops[stops < len(data)]))
    return not bool(((data[edges] & 0xC0) == 0x80).any())


def _sentence(text: bytes, where: str) -> str:
    """What is wrong with one document, or nothing; ``where`` names its field, of a row."""
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"is not UTF-8{where}: it begins like UTF-16; convert it"
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as exc:
        return f"is not UTF-8{where}: byte {exc.start} is 0x{text[exc.start]:02x} ({exc.reason}); convert it"
    at = text.find(b"\0")
    return f"holds a NUL{where} (byte {at}): is it text?" if at >= 0 else ""


_LEAST_SHARED = 32  # texts: fewer are not worth another thread

# TextTokens: makes token ids of the text in one field of samples that have others, such as captions.


class TextTokens:
    """
    A tokenizer and what a sequence of its ids is, for all fields of token ids of one store.

    Give it to ``encode_values`` and to ``fastio.Writer``, and keep ``record`` in the store's ``metadata["tokenizer"]``:
    ``pad`` and decoding use it. One text is one sequence, so ``Sequences(over="split")`` raises SourceError, and so
    does a bos or eos that the tokenizer lacks. ``jobs`` threads share the texts of one call, for whoever calls from one
    thread. Thread-safe; pickled with its tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, sequences: Sequences | None = None, *, jobs: int = 1) -> None:
        self.tokenizer = tokenizer
        self._jobs = jobs
        self.sequences = sequences or Sequences()
        if self.sequences.over in ("split", "concat"):
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
        problems, places, ids, lengths = self._ids(field, [str(parts[i]) for i in at])
        problems = {at[place]: words for place, words in problems.items()}
        places = [at[place] for place in places]
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

    def _ids(
        self, field: Field, texts: Sequence[str]
    ) -> tuple[dict[int, str], list[int], NDArray[Any], NDArray[np.int64]]:
        """
        Return what is wrong with texts, by position; the positions of the others, their ids one after the other, and
        how many each has.
        """
        each = max(_LEAST_SHARED, -(-len(texts) // self._jobs))
        firsts = range(0, len(texts), each)
        pieces = (_documents(texts[first : first + each]) for first in firsts)
        jobs = min(self._jobs, len(firsts))
        with in_our_threads(), ExitStack() as held:
            if jobs > 1:
                encoded = list(held.enter_context(closing(in_order(self.tokenizer.encode, pieces, jobs=jobs))))
            else:
                encoded = [self.tokenizer.encode(piece) for piece in pieces]
        problems: dict[int, str] = {}
        places: list[int] = []
        for first, (kept, *_) in zip(firsts, encoded, strict=True):
            said = ((first + int(each.key), each.problem) for each in kept.problems)
            problems |= {place: f"has a field {field.name!r} that {problem}" for place, problem in said}
            places += [first + int(key) for key in kept.keys]
        return (
            problems,
            places,
            np.concatenate([each[1] for each in encoded]),
            np.concatenate([each[2] for each in encoded]),
        )

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
