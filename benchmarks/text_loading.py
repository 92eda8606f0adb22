"""Loading token ids, padded and packed, compared with torch's DataLoader: ``python -m benchmarks.text_loading``.

The 200,000 sequences of ``peers/text_set.py``, batches of 64. Rounds are interleaved; each ratio is that of one round,
so that a machine that slows down slows both of its sides. ``filled`` is the share of slots that hold a token.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.suite import Suite
from benchmarks.peers.text import dataloader_tensors, fastio_store
from benchmarks.peers.text_set import SEQUENCES, text_suite
from benchmarks.peers.work import Work
from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler

__all__ = ["main"]

_BESIDE = "DataLoader, pad_sequence"
_TOKENS = 8192  # of a packed batch


def _work(suite: Suite, threads: int) -> Work:
    work = Work(suite.source, suite.labels, suite.packed, "groups", "text", suite.batch_size, threads)
    if not (work.packed / "train.h5").exists():
        fastio_store.pack(work)
    return work


def _cases(work: Work) -> dict[str, Callable[[], Iterable[Any]]]:
    dataset = FastDataset(work.packed / "train.h5")
    lengths = dataset.column("length")

    def bucketed(batch_size: int) -> FastLoader:
        sampler = LengthBucketSampler(lengths, batch_size=batch_size)
        return FastLoader(dataset, batch_sampler=sampler, collate="pad", threads=work.workers)

    def packed() -> FastLoader:
        sampler = PackSampler(lengths, max_tokens=_TOKENS)
        return FastLoader(dataset, batch_sampler=sampler, collate="pack", threads=work.workers)

    return {
        _BESIDE: lambda: dataloader_tensors.loader(replace(work, variant="plain")),
        "DataLoader, grouped": lambda: dataloader_tensors.loader(replace(work, variant="groups")),
        "fastio, bucketed": lambda: bucketed(work.batch_size),
        "fastio, bucketed, 256": lambda: bucketed(256),
        "fastio, random": lambda: FastLoader(dataset, work.batch_size, shuffle="full", threads=work.workers),
        f"fastio, packed, {_TOKENS}": packed,
    }


def _filled(batch: Any) -> tuple[int, int]:
    """Tokens and slots of a batch."""
    ids, lengths = (batch["input_ids"], batch["lengths"]) if isinstance(batch, dict) else batch
    return int(lengths.sum()), ids.numel()


def _rate(loader: Iterable[Any], count: int, seconds: float) -> tuple[float, float]:
    """Sequences by second and by CPU-second, of whole epochs."""
    epochs = 0
    cpu, wall = time.process_time(), time.perf_counter()
    while not epochs or time.perf_counter() - wall < seconds:
        for _ in loader:
            pass
        epochs += 1
    return epochs * count / (time.perf_counter() - wall), epochs * count / (time.process_time() - cpu)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / ".data" / "text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    loaders = {name: make() for name, make in _cases(_work(text_suite(arguments.data), arguments.threads)).items()}
    filled = {name: np.sum([_filled(batch) for batch in loader], axis=0) for name, loader in loaders.items()}
    rounds = [
        {name: _rate(loader, SEQUENCES, arguments.seconds) for name, loader in loaders.items()}
        for _ in range(arguments.rounds)
    ]
    print(f"{'':26} {'sequences/s':>12} {'per CPU-second':>15} {'filled':>8}  times {_BESIDE}, by CPU")
    for name, (tokens, slots) in filled.items():
        wall, cpu = (statistics.median(each[name][i] for each in rounds) for i in (0, 1))
        beside = statistics.median(each[name][1] / each[_BESIDE][1] for each in rounds)
        print(f"{name:26} {wall:12,.0f} {cpu:15,.0f} {tokens / slots:8.2%}  {beside:.1f}")


if __name__ == "__main__":
    main()
