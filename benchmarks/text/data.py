"""The texts that all loaders read, from a seed: chats, preference pairs, sequences, one long stream, paragraphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.text.work import (
    EOS,
    LENGTHS,
    PACKED_TOKENS,
    VOCABULARY,
    Texts,
    Work,
    lengths_file,
    plan_name,
    write_texts,
)

__all__ = ["MAKERS", "made_text"]

CHATS = 20_000
PAIRS = 10_000
SEQUENCES = 25_000
STREAM_TOKENS = 20_000_000
PLANNED = 10_000_000
PARAGRAPHS = 20_000
TRAINED_VOCABULARY = 4096


def _ids(lengths: NDArray[np.int64], rng: np.random.Generator) -> Texts:
    """Random ids from 1; 0 is padding."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Texts(rng.integers(1, VOCABULARY, offsets[-1]).astype(np.uint16), offsets)


def _lognormal(rng: np.random.Generator, median: float, sigma: float, *, count: int, longest: int) -> NDArray[np.int64]:
    return np.clip(rng.lognormal(np.log(median), sigma, count), 5, longest).astype(np.int64)


def _make_chats(source: Path, rng: np.random.Generator) -> None:
    """Chats of one to three turns of the user and of the assistant, which counts: about half of the ids."""
    texts = _ids(_drawn_lengths("chats", rng, CHATS), rng)
    counts = np.zeros(len(texts.ids), bool)
    for start, stop in zip(texts.offsets[:-1].tolist(), texts.offsets[1:].tolist(), strict=True):
        cuts = np.sort(rng.integers(start, stop + 1, 2 * rng.integers(1, 4) - 1))
        for first, last in zip(cuts[::2], [*cuts[1::2], stop], strict=True):
            counts[first:last] = True
        counts[stop - 1] = True
    write_texts(source / "chats", texts)
    np.save(source / "chats" / "counts.npy", counts)


def _drawn_lengths(kind: str, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """How long documents are, for rows of PACKED_TOKENS."""
    if kind == "chats":
        lengths = rng.gamma(2.2, 80, count) + 20
    elif kind == "log-normal":
        lengths = rng.lognormal(4.8, 0.8, count)
    else:
        assert kind == "two peaks"
        lengths = np.where(rng.random(count) < 0.5, rng.normal(120, 30, count), rng.normal(700, 90, count))
    return np.clip(lengths, 4, PACKED_TOKENS).astype(np.int64)


def _make_lengths(source: Path, rng: np.random.Generator, *, kind: str) -> None:
    """Lengths alone, as int32."""
    source.mkdir(parents=True, exist_ok=True)
    np.save(lengths_file(source, kind), _drawn_lengths(kind, rng, PLANNED).astype(np.int32))


def _make_pairs(source: Path, rng: np.random.Generator) -> None:
    """Prompts with a chosen and a rejected answer."""
    for name, median in (("prompt", 60), ("chosen", 200), ("rejected", 180)):
        write_texts(source / "pairs" / name, _ids(_lognormal(rng, median, 0.7, count=PAIRS, longest=768), rng))


def _make_sequences(source: Path, rng: np.random.Generator) -> None:
    """Many short and a few long texts: 5 to 512 ids."""
    write_texts(source / "sequences", _ids(_lognormal(rng, 60, 0.9, count=SEQUENCES, longest=512), rng))


def _make_stream(source: Path, rng: np.random.Generator) -> None:
    """
    Documents one after the other, each with EOS behind it, as ``train.bin`` and as texts.

    The ids of a document count up from a random one (modulo VOCABULARY), so that a window shows whether it is one.
    """
    lengths = _lognormal(rng, 400, 1.0, count=STREAM_TOKENS // 600, longest=20_000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    first = np.repeat(rng.integers(0, VOCABULARY, len(lengths)) - offsets[:-1], lengths)
    ids = ((first + np.arange(offsets[-1])) % VOCABULARY).astype(np.uint16)
    ids[offsets[1:] - 1] = EOS
    write_texts(source / "stream", Texts(ids, offsets))
    ids.tofile(source / "stream" / "train.bin")


def made_text(paragraphs: int, *, seed: int = 0) -> str:
    """Paragraphs of words whose frequencies fall as Zipf's law says, of long-tailed lengths."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, size)) for size in rng.integers(1, 10, 5000)]
    lengths = np.minimum(rng.lognormal(3, 1, paragraphs).astype(np.int64) + 1, 2000)
    chosen = np.minimum(rng.zipf(1.3, int(lengths.sum())), len(words)) - 1
    stops = np.cumsum(lengths)
    return "\n\n".join(
        " ".join(words[i] for i in chosen[stop - size : stop]) for stop, size in zip(stops, lengths, strict=True)
    )


def _make_paragraphs(source: Path, text: Path | None) -> None:
    """Paragraphs, of a file if one is given; a byte-level BPE trained on them; how many ids it makes of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    whole = text.read_text(encoding="utf-8") if text else made_text(PARAGRAPHS)
    paragraphs = [each for each in whole.split("\n\n") if each.strip()]
    folder = source / "paragraphs"
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        paragraphs, trainers.BpeTrainer(vocab_size=TRAINED_VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.save(str(folder / "bpe.json"))
    ids = sum(len(each) for each in tokenizer.encode_batch(paragraphs, add_special_tokens=False))
    expected = {"documents": len(paragraphs), "bpe": ids, "bytes": sum(len(each.encode()) for each in paragraphs)}
    (folder / "expected.json").write_text(json.dumps(expected))


def _seeded(make: Callable[[Path, np.random.Generator], None]) -> Callable[[Work, Path | None], None]:
    return lambda work, _: make(work.source, np.random.default_rng(0))


# What each training reads.
MAKERS: dict[str, Callable[[Work, Path | None], None]] = {
    "packed": _seeded(_make_chats),
    "pairs": _seeded(_make_pairs),
    "windows": _seeded(_make_stream),
    "padded": _seeded(_make_sequences),
    **{plan_name(kind): _seeded(partial(_make_lengths, kind=kind)) for kind in LENGTHS},
    "tokenise": lambda work, text: _make_paragraphs(work.source, text),
}
assert PACKED_TOKENS < VOCABULARY < EOS
