"""TextSamples: the samples that a tokenizer makes of the documents of a source of text."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.packing.pipeline import in_order
from fastio.converters.sources.documents import Documents, Limits, TextSource
from fastio.converters.sources.source import Chunk, PassedOn
from fastio.converters.text.encode import Encoder
from fastio.converters.text.huggingface import in_our_threads
from fastio.store.kinds.scan import Problem
from fastio.types.schema import Schema

if TYPE_CHECKING:
    from fastio.converters.text.chat import ChatEncoder
    from fastio.converters.text.preference import PreferenceEncoder

__all__ = ["TextSamples"]

_Tag = TypeVar("_Tag")
_KNOWN_LATER = ("between", "left_out")  # of the record of a source


@dataclass(frozen=True, slots=True)
class TextSamples(PassedOn):
    """
    The documents of ``source`` as ``encoder`` makes samples of them. Satisfies ``StreamedSource``.

    ``classes`` and ``numbers`` are those of ``renumbered``.
    """

    source: TextSource
    encoder: Encoder | ChatEncoder | PreferenceEncoder
    classes: Sequence[str] | None = None
    numbers: NDArray[np.int64] | None = None

    @property
    def path(self) -> str:
        """The path as the user named it."""
        return self.source.path

    @property
    def schema(self) -> Schema:
        """
        Tokens or text, and the label if there are labels; of chats, tokens and which of them count in the loss; of
        preferences, the tokens of the prompt and of each answer.
        """
        return self.encoder.schema

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The source's, and the tokenizer with the rule for sequences, but not what became of documents."""
        metadata = dict(self.source.metadata)
        if self.numbers is not None:
            metadata["classes"] = self.classes
        if any(field.traits.is_tokens for field in self.schema.payload):
            metadata["tokenizer"] = {**self.encoder.to_json(), "options": self.encoder.sequences.to_json()}
        return {**metadata, **self.encoder.record}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Names and sizes of the files, how they are read, and the tokenizer."""
        metadata = dict(self.metadata)
        record = {name: value for name, value in metadata["source"].items() if name not in _KNOWN_LATER}
        names, sizes, total = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8), 0
        for path, size in self.source.file_sizes():
            name = path.removeprefix(f"{self.path}/")
            names.update(os.fsencode(name if name != path else os.path.basename(path)) + b"\0")  # noqa: PTH119 - many
            sizes.update(size.to_bytes(8, "little"))
            total += size
        chat = {"chat": _digest(metadata["chat"])} if "chat" in metadata else {}
        return {
            **chat,
            "bytes": total,
            "files": names.hexdigest(),
            "sizes": sizes.hexdigest(),
            "source": record,
            "tokenizer": _digest(metadata.get("tokenizer")),
            "classes": _digest(metadata.get("classes")),
            "problems": _digest([[problem.key, problem.problem] for problem in self.problems]),
        }

    @property
    def left_out(self) -> Sequence[Problem]:
        """None: what is no text is a problem, or no file of this kind."""
        return ()

    def files(self) -> Iterator[str]:
        """Yield the paths of the files."""
        return (path for path, _ in self.source.file_sizes())

    def pieces(self, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all documents."""
        return self.source.read(Limits(), pool)

    def encoded(self, pieces: Iterable[tuple[_Tag, Documents]], jobs: int) -> Generator[tuple[_Tag, Chunk], None, None]:
        """Yield the samples of pieces in order, made by ``jobs`` threads; the tag of each piece goes with them."""

        def encode(tagged: tuple[_Tag, Documents]) -> tuple[_Tag, Chunk]:
            return tagged[0], self._labelled(self.encoder(tagged[1]))

        with in_our_threads(), closing(in_order(encode, pieces, jobs=jobs)) as chunks:
            yield from chunks

    def samples(self, pool: ThreadPool, jobs: int) -> Generator[Chunk, None, None]:
        """Yield all samples in order, made by ``jobs`` threads."""
        with closing(self.encoded(((None, piece) for piece in self.pieces(pool)), jobs)) as chunks:
            yield from (chunk for _, chunk in chunks)

    def renumbered(self, classes: Sequence[str], numbers: NDArray[np.int64]) -> TextSamples:
        """Return the samples with ``classes`` as the names of labels, and ``numbers[label]`` in place of each label."""
        return replace(self, classes=list(classes), numbers=numbers)

    def _labelled(self, chunk: Chunk) -> Chunk:
        if self.numbers is None:
            return chunk
        columns = {**chunk.batch.columns, "label": self.numbers[chunk.batch.columns["label"]]}
        return replace(chunk, batch=replace(chunk.batch, columns=columns))


def _digest(data: Any) -> str:
    encoded = json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()
