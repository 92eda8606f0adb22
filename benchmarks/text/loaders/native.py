"""FastLoader: stores of token ids, batches filled by native threads; PackSampler alone, where rows are only planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.text.work import (
    LENGTHS,
    PACKED_TOKENS,
    ROWS,
    TRAININGS,
    WINDOW,
    Batch,
    Epochs,
    Lazy,
    Texts,
    Work,
    lengths_file,
    plan_name,
    read_texts,
)
from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler, Writer
from fastio.types.runs import runs_of_mask

__all__ = ["LOADERS", "PACKS"]

_PAIR = ("prompt", "chosen", "rejected")


def _write(work: Work, kinds: dict[str, str], fields: Callable[[], Iterator[tuple[Any, ...]]]) -> None:
    with Writer(work.packed / "train.h5", kinds) as out:
        for values in fields():
            out.write(dict(zip(kinds, values, strict=True)))


def _pack_chats(work: Work) -> None:
    texts, counts = read_texts(work.source / "chats"), np.load(work.source / "chats" / "counts.npy")
    masks = Texts(counts, texts.offsets)
    _write(
        work,
        {"tokens": "tokens16", "loss": "loss"},
        lambda: ((ids, runs_of_mask(mask)) for ids, mask in zip(texts, masks, strict=True)),
    )


def _pack_pairs(work: Work) -> None:
    texts = [read_texts(work.source / "pairs" / name) for name in _PAIR]
    _write(work, dict.fromkeys(_PAIR, "tokens16"), lambda: zip(*texts, strict=True))


def _pack_sequences(work: Work) -> None:
    texts = read_texts(work.source / "sequences")
    _write(work, {"tokens": "tokens16"}, lambda: ((ids,) for ids in texts))


PACKS = {"packed": _pack_chats, "pairs": _pack_pairs, "padded": _pack_sequences}


def _load(work: Work, *batch_size: int, dataset: Any = None, **options: Any) -> FastLoader:
    threads = max(work.workers, 1)
    return FastLoader(dataset or work.packed / "train.h5", *batch_size, threads=threads, **options)


def _packed(work: Work, *, fields: str | None = None) -> Epochs:
    chats = FastDataset(work.packed / "train.h5", fields=fields)
    rows = PackSampler(chats.lengths, max_tokens=PACKED_TOKENS, rows=ROWS)
    loader = _load(work, dataset=chats, batch_sampler=rows, collate="pack")
    return Epochs(lambda: ((batch | {"rows": len(batch["input_ids"])}, len(batch["lengths"])) for batch in loader))


def _pairs(work: Work, *, by_length: bool = False) -> Epochs:
    size = TRAININGS["pairs"].batch_size
    if by_length:
        pairs = FastDataset(work.packed / "train.h5")
        longest = np.maximum(*(pairs.lengths_of(name) for name in ("chosen", "rejected")))
        buckets = LengthBucketSampler(pairs.lengths_of("prompt") + longest, batch_size=size)
        loader = _load(work, dataset=pairs, batch_sampler=buckets, collate="preference")
    else:
        loader = _load(work, size, shuffle="full", collate="preference")
    return Epochs(lambda: ((batch, len(batch["input_ids"]) // 2) for batch in loader))


def _padded(work: Work, *, by_length: bool) -> Epochs:
    size = TRAININGS["padded"].batch_size
    if by_length:
        texts = FastDataset(work.packed / "train.h5")
        loader = _load(work, dataset=texts, batch_sampler=LengthBucketSampler(texts.lengths, batch_size=size))
    else:
        loader = _load(work, size, shuffle="full")
    return Epochs(lambda: ((batch, len(batch["lengths"])) for batch in loader))


def _windows(work: Work, **options: Any) -> Epochs:
    from fastio import TokenStream

    windows = TokenStream(work.source / "stream" / "train.bin", dtype="uint16").windows(WINDOW + 1, **options)
    loader = _load(work, TRAININGS["windows"].batch_size, dataset=windows, shuffle=True)

    def batches() -> Iterator[Batch]:
        for batch in loader:
            ids = batch["input_ids"]
            yield {"inputs": ids[:, :-1], "targets": ids[:, 1:]}, len(ids)

    return Epochs(batches)


def _planned(work: Work, *, kind: str, packing: Any = "mixed") -> Epochs:
    """A new sampler each time: one keeps its latest plan."""
    lengths = np.load(lengths_file(work.source, kind))

    def batches() -> Iterable[Batch]:
        plan = PackSampler(lengths, max_tokens=PACKED_TOKENS, packing=packing).plan(0)
        return [({"lengths": Lazy(lambda: lengths[plan.indices]), "cuts": plan.cuts}, len(plan.indices))]

    return Epochs(batches)


LOADERS: dict[str, dict[str, Callable[[Work], Epochs]]] = {
    "fastio": {
        "packed": _packed,
        "pairs": _pairs,
        "windows": partial(_windows, random=True),
        "padded": partial(_padded, by_length=False),
        **{plan_name(kind): partial(_planned, kind=kind) for kind in LENGTHS},
    },
    "fastio, ids alone": {"packed": partial(_packed, fields="tokens")},
    "fastio, by length": {"pairs": partial(_pairs, by_length=True), "padded": partial(_padded, by_length=True)},
    "fastio, side by side": {"windows": partial(_windows, stride=WINDOW)},
    "fastio, longest first": {
        plan_name(kind): partial(_planned, kind=kind, packing="longest_first") for kind in LENGTHS
    },
}
