"""fastio: stores of numbers and of texts, a stream of tokens; FastLoader with each of its orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastio import FastDataset, FastLoader, LengthBucketSampler, Mixture, PackSampler, TokenStream, Writer

__all__ = ["buckets", "full", "loader", "mixture", "numbers", "pack", "packs", "proof", "windows"]

_SHORTEST, _LONGEST = 10, 40
_WINDOW = 16


def pack(folder: Path, count: int) -> None:
    """
    The same numbers in each form: a number of 4 bytes a sample; the same as two stores of three and two fifths; a text
    of 10 to 40 tokens, each of which is its number from 1 on; a window of 16 tokens, which count up.
    """
    cut = 3 * count // 5
    for name, start, stop in (("numbers", 0, count), ("first", 0, cut), ("second", cut, count)):
        with Writer(folder / f"{name}.h5", fields={"number": ("int32", (1,))}) as out:
            for number in range(start, stop):
                out.write({"number": np.array([number], np.int32)})
    lengths = np.random.default_rng(0).integers(_SHORTEST, _LONGEST + 1, count)
    with Writer(folder / "texts.h5", fields={"input_ids": "tokens16"}) as out:
        for number, length in enumerate(lengths):
            out.write({"input_ids": np.full(length, number + 1, np.uint16)})
    np.save(folder / "stream.npy", np.arange(count * _WINDOW, dtype=np.uint16))


def loader(folder: Path, batch_size: int, **ranks: Any) -> Any:
    """Ranks come from the process group, unless a test names them."""
    return FastLoader(folder / "numbers.h5", batch_size, shuffle=True, threads=1, **ranks)


def full(folder: Path, batch_size: int, **ranks: Any) -> Any:
    """Every sample anywhere, also where memory would not hold the store."""
    return FastLoader(folder / "numbers.h5", batch_size, shuffle="full", threads=1, **ranks)


def mixture(folder: Path, batch_size: int, **ranks: Any) -> Any:
    """Two stores in the proportion of their sizes, so that an epoch has each sample once."""
    mixed = Mixture({"first": folder / "first.h5", "second": folder / "second.h5"}, {"first": 3, "second": 2})
    return FastLoader(mixed, batch_size, shuffle=True, threads=1, **ranks)


def buckets(folder: Path, batch_size: int, **ranks: Any) -> Any:
    """Texts in batches of similar length."""
    texts = FastDataset(folder / "texts.h5")
    sampler = LengthBucketSampler(texts.column("length"), batch_size=batch_size, **ranks)
    return FastLoader(texts, batch_sampler=sampler, collate="pad", threads=1)


def packs(folder: Path, batch_size: int, **ranks: Any) -> Any:
    """Texts packed into rows, of which ``batch_size`` make a batch."""
    texts = FastDataset(folder / "texts.h5")
    sampler = PackSampler(texts.column("length"), max_tokens=_LONGEST, rows=batch_size, **ranks)
    return FastLoader(texts, batch_sampler=sampler, collate="pack", threads=1)


def windows(folder: Path, batch_size: int, **ranks: Any) -> Any:
    """Windows of a token stream, side by side."""
    stream = TokenStream(folder / "stream.npy")
    return FastLoader(stream.windows(_WINDOW), batch_size, shuffle=True, threads=1, **ranks)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch of any of these."""
    if not isinstance(batch, dict):
        return batch.flatten().tolist()
    ids = batch["input_ids"]
    if "position_ids" in batch:  # rows of several texts; 0 is what fills them up
        return (ids[(batch["position_ids"] == 0) & (ids > 0)] - 1).tolist()
    return (ids[:, 0] - 1 if "lengths" in batch else ids[:, 0] // _WINDOW).tolist()


def proof(loader: Any) -> str:
    """
    Return what the receipt of all ranks and starts says; to be called on all ranks.

    "counted" is proven of the windows' numbers alone: a window has no checksum of its own.
    """
    receipt = loader.receipt()
    if receipt.is_exact:
        return "proven"
    return "counted" if not receipt.is_verified and "samples once" in str(receipt) else str(receipt)
