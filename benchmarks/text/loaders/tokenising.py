"""Paragraphs to ids: by the tokenizer's ``encode_batch``, which leaves them in memory, and by packing, to the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tokenizers import Tokenizer

from benchmarks.text.work import Batch, Epochs, Work
from fastio.converters import pack
from fastio.converters.text import Encoder, Sequences, TextOptions, TextSamples, load_tokenizer, open_text

__all__ = ["LOADERS"]


def _encoded(work: Work) -> Epochs:
    folder = work.source / "paragraphs"
    tokenizer = Tokenizer.from_file(str(folder / "bpe.json"))
    texts = (folder / "text.txt").read_text(encoding="utf-8").split("\n\n")

    def batches() -> Iterable[Batch]:
        ids = sum(map(len, tokenizer.encode_batch(texts, add_special_tokens=False)))
        return [({"documents": len(texts), "tokenizer": "bpe"}, ids)]

    return Epochs(batches)


def _packed(work: Work, *, suffix: str, tokenizer: str = "bpe") -> Epochs:
    folder = work.source / "paragraphs"
    encoder = Encoder(load_tokenizer(str(folder / "bpe.json") if tokenizer == "bpe" else tokenizer), Sequences())
    out = work.packed.with_suffix(suffix)

    def batches() -> Iterable[Batch]:
        source = open_text(folder / "text.txt", options=TextOptions(split="paragraph"))
        documents = pack(TextSamples(source, encoder), out, overwrite=True).documents
        assert documents is not None
        return [({"documents": documents.documents, "tokenizer": tokenizer}, documents.tokens)]

    return Epochs(batches)


LOADERS: dict[str, dict[str, Callable[[Work], Epochs]]] = {
    "tokenizers, encode_batch": {"tokenise": _encoded},
    **{f"fastio to {suffix}": {"tokenise": partial(_packed, suffix=suffix)} for suffix in (".lmdb", ".h5", ".tar")},
    "fastio to .lmdb, bytes": {"tokenise": partial(_packed, suffix=".lmdb", tokenizer="bytes")},
}
