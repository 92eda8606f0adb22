"""The sequences that all peers read: token ids of many short and a few long texts, from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.suite import Suite

__all__ = ["BATCH_SIZE", "SEQUENCES", "VOCABULARY", "sequence_lengths", "text_suite"]

BATCH_SIZE = 64
SEQUENCES = 200_000
SHORTEST, LONGEST = 5, 512
MEDIAN, SIGMA = 60, 0.9  # of the log-normal distribution, before it is cut
VOCABULARY = 50_000  # ids from 1; 0 is padding


def sequence_lengths(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Log-normal lengths, as texts have them, between SHORTEST and LONGEST."""
    lengths = np.exp(rng.normal(np.log(MEDIAN), SIGMA, count))
    return np.clip(lengths, SHORTEST, LONGEST).astype(np.int64)


def text_suite(root: Path, *, count: int = SEQUENCES) -> Suite:
    """
    A folder with ``tokens.npy`` (all ids one after the other, uint16) and ``offsets.npy``; made once.

    ``expected`` holds the number of sequences, of tokens, and the sum of all ids.
    """
    home = root / f"sequences-{count}"
    suite = Suite(
        pictures="",
        source=home / "sequences",
        labels=home / "sequences",
        expected=home / "expected.npy",
        packed=home / "packed",
        settings={"sequences": count},
    )
    if not suite.expected.exists():
        rng = np.random.default_rng(0)
        lengths = sequence_lengths(count, rng)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = rng.integers(1, VOCABULARY, offsets[-1]).astype(np.uint16)
        suite.source.mkdir(parents=True, exist_ok=True)
        suite.packed.mkdir(exist_ok=True)
        np.save(suite.source / "tokens.npy", tokens)
        np.save(suite.source / "offsets.npy", offsets)
        np.save(suite.expected, np.array([count, offsets[-1], tokens.sum(dtype=np.int64)]))
    return suite
