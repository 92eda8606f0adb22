"""Packing text compared with the tokenizer alone: ``python -m benchmarks.text_packing [TEXT]``.

The same documents, a paragraph each: once through ``encode_batch`` of the ``tokenizers`` library, its ids left where
they are, and once through ``fastio pack`` into each format, synced to disk. Rounds are interleaved; each ratio is
that of one round, so that a machine that slows down slows both of its sides.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["made_text", "main"]

_SUFFIXES = (".lmdb", ".h5", ".tar")
_VOCABULARY = 4096


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


def _trained(texts: list[str], path: Path) -> Any:
    """A byte-level BPE of these texts, saved."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=_VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.save(str(path))
    return tokenizer


def _packing(source: Path, tokenizer: str, out: Path) -> Callable[[], int]:
    from fastio.converters import pack
    from fastio.converters.text import Encoder, Sequences, TextOptions, TextSamples, load_tokenizer, open_text

    encoder = Encoder(load_tokenizer(tokenizer), Sequences())

    def packed_tokens() -> int:
        options = TextOptions(split="paragraph")
        report = pack(TextSamples(open_text(source, options=options), encoder), out, overwrite=True)
        assert report.documents is not None
        return report.documents.tokens

    return packed_tokens


def _rates(work: Callable[[], int]) -> tuple[float, float]:
    """Tokens by second and by CPU-second."""
    cpu, wall = time.process_time(), time.perf_counter()
    tokens = work()
    return tokens / (time.perf_counter() - wall), tokens / (time.process_time() - cpu)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", type=Path, help="a .txt of paragraphs; made from a seed unless given")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else made_text(20_000)
    texts = [each for each in text.split("\n\n") if each.strip()]
    with tempfile.TemporaryDirectory() as folder:
        source, trained = Path(folder) / "text.txt", Path(folder) / "bpe.json"
        source.write_text("\n\n".join(texts), encoding="utf-8")
        tokenizer = _trained(texts, trained)
        cases: dict[str, Callable[[], int]] = {
            "encode_batch": lambda: sum(map(len, tokenizer.encode_batch(texts, add_special_tokens=False)))
        }
        for suffix in _SUFFIXES:
            cases[f"BPE to {suffix}"] = _packing(source, str(trained), source.with_name(f"bpe{suffix}"))
        for suffix in _SUFFIXES:
            cases[f"bytes to {suffix}"] = _packing(source, "bytes", source.with_name(f"bytes{suffix}"))
        rounds = [{name: _rates(work) for name, work in cases.items()} for _ in range(arguments.rounds + 1)][1:]
    print(f"{'':16} {'tokens/s':>12} {'per CPU-second':>15}  times encode_batch: by wall, by CPU")
    for name in cases:
        wall, cpu = (statistics.median(each[name][i] for each in rounds) for i in (0, 1))
        beside = [statistics.median(each[name][i] / each["encode_batch"][i] for each in rounds) for i in (0, 1)]
        print(f"{name:16} {wall:12,.0f} {cpu:15,.0f}  {beside[0]:.2f} {beside[1]:.2f}")


if __name__ == "__main__":
    main()
