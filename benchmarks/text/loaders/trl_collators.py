"""TRL and transformers: datasets in Arrow files, TRL's packing and collators, a torch DataLoader as their Trainer's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from torch.utils.data import DataLoader
from trl.data_utils import pack_dataset

from benchmarks.text.loaders.padding import LengthGroups
from benchmarks.text.work import (
    IGNORED,
    LENGTHS,
    PACKED_TOKENS,
    ROWS,
    TRAININGS,
    Batch,
    Epochs,
    Lazy,
    Texts,
    Work,
    lengths_file,
    plan_name,
    read_texts,
)

__all__ = ["LOADERS", "PACKS"]

_PLANNED = 50_000  # lengths, of which it moves the ids as well

datasets.disable_progress_bars()


def _lists(texts: Texts) -> pa.Array:
    """As the ids that a tokenizer gives: lists of int64."""
    return pa.ListArray.from_arrays(pa.array(texts.offsets.astype(np.int32)), pa.array(texts.ids.astype(np.int64)))


def _save(work: Work, columns: Mapping[str, Texts]) -> None:
    table = pa.table({name: _lists(texts) for name, texts in columns.items()})
    datasets.Dataset(table).save_to_disk(str(work.packed))


def _pack_chats(work: Work) -> None:
    """Ids, and labels with -100 where they do not count, which its SFTTrainer has before it packs."""
    texts, counts = read_texts(work.source / "chats"), np.load(work.source / "chats" / "counts.npy")
    labels = np.where(counts, texts.ids.astype(np.int64), IGNORED)
    _save(work, {"input_ids": texts, "labels": Texts(labels, texts.offsets)})


def _pack_pairs(work: Work) -> None:
    names = ("prompt", "chosen", "rejected")
    _save(work, {f"{name}_ids": read_texts(work.source / "pairs" / name) for name in names})


def _pack_sequences(work: Work) -> None:
    _save(work, {"input_ids": read_texts(work.source / "sequences")})


PACKS = {"packed": _pack_chats, "pairs": _pack_pairs, "padded": _pack_sequences}


def _loader(work: Work, dataset: Any, collate: Callable[[Any], Batch], **order: Any) -> DataLoader[Any]:
    workers = {"num_workers": work.workers, "persistent_workers": work.workers > 0}
    return DataLoader(dataset, collate_fn=collate, **order, **workers)


def _rows(dataset: Any, seq_length: int) -> Any:
    return pack_dataset(dataset, seq_length, "bfd", {"load_from_cache_file": False})


def _packed(work: Work, *, before: bool) -> Epochs:
    """Best-fit packing, then batches of rows made one; ``before``: packed once, for the same rows in all epochs."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    chats = datasets.load_from_disk(str(work.packed))
    rows = _rows(chats, PACKED_TOKENS) if before else None

    def collate(batch: Any) -> Batch:
        return collator(batch) | {"rows": len(batch)}, sum(len(row["seq_lengths"]) for row in batch)

    return Epochs(lambda: _loader(work, rows or _rows(chats, PACKED_TOKENS), collate, batch_size=ROWS, shuffle=True))


def _pairs(work: Work) -> Epochs:
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    collator = DataCollatorForPreference(pad_token_id=0)
    size = TRAININGS["pairs"].batch_size
    dataset = datasets.load_from_disk(str(work.packed))
    loader = _loader(work, dataset, lambda rows: (collator(rows), len(rows)), batch_size=size, shuffle=True)
    return Epochs(lambda: loader)


def _padded(work: Work) -> Epochs:
    """DataCollatorWithPadding of transformers, with a tokenizer that only pads here."""
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0})), pad_token="<pad>")
    collator = DataCollatorWithPadding(tokenizer)

    def collate(rows: Any) -> Batch:
        batch = collator(rows)
        return {"input_ids": batch["input_ids"], "lengths": batch["attention_mask"].sum(1)}, len(rows)

    lengths = read_texts(work.source / "sequences").lengths
    groups = LengthGroups(lengths, TRAININGS["padded"].batch_size)
    loader = _loader(work, datasets.load_from_disk(str(work.packed)), collate, batch_sampler=groups)
    return Epochs(lambda: loader)


def _planned(work: Work, *, kind: str) -> Epochs:
    """TRL has no plan apart from its packing, so the ids are moved, too: one byte each."""
    lengths = np.load(lengths_file(work.source, kind))[:_PLANNED]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    texts = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.int8)))
    dataset = datasets.Dataset(pa.table({"input_ids": texts}))

    def batches() -> Iterable[Batch]:
        rows = _rows(dataset, PACKED_TOKENS).with_format("arrow")
        return [({"lengths": Lazy(lambda: _lengths(rows)[0]), "cuts": Lazy(lambda: _lengths(rows)[1])}, len(lengths))]

    return Epochs(batches)


def _lengths(rows: Any) -> tuple[Any, Any]:
    """Of the documents of all rows, and where the rows begin among them."""
    column = rows["seq_lengths"][:].combine_chunks()
    return column.flatten().to_numpy(), np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy())])


LOADERS: dict[str, dict[str, Callable[[Work], Epochs]]] = {
    "TRL": {
        "packed": partial(_packed, before=False),
        "pairs": _pairs,
        **{plan_name(kind): partial(_planned, kind=kind) for kind in LENGTHS},
    },
    "TRL, packed before": {"packed": partial(_packed, before=True)},
    "transformers, by length": {"padded": _padded},
}
