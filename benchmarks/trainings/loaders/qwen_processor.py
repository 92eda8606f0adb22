"""The Qwen2VLProcessor of transformers on files, with Pillow, in a DataLoader that fills rows chat by chat."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor

from benchmarks.trainings.work import (
    IGNORED_LABEL,
    IMAGE,
    MEAN,
    MOST_PATCHES,
    MOST_PIXELS,
    MOST_TOKENS,
    STD,
    WORDS,
    Batch,
    Epochs,
    Work,
    arrays_of,
    chats_of,
)

__all__ = ["LOADERS"]


class _Processor(Qwen2VLProcessor):  # type: ignore[misc]
    """Without a processor of videos."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        return type(argument)


def _processor() -> Any:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[UNK]", additional_special_tokens=list(WORDS[1:5])
    )
    pictures = Qwen2VLImageProcessorPil(
        min_pixels=56 * 56, max_pixels=MOST_PIXELS, image_mean=list(MEAN), image_std=list(STD)
    )
    return _Processor(image_processor=pictures, tokenizer=words)


class _Rows(IterableDataset[Any]):
    """Chats in random order, each in the row before it if that has room."""

    def __init__(self, work: Work) -> None:
        self._chats, self._processor = chats_of(work), _processor()

    def __iter__(self) -> Iterator[Any]:
        row: list[Any] = []
        tokens = patches = 0
        for paths, text in random.sample(self._chats, len(self._chats)):
            photos = []
            for path in paths:
                with Image.open(path) as file:
                    photos.append(file.convert("RGB"))
            chat = self._processor(text=[text], images=photos, return_tensors="pt")
            own_tokens, own_patches = chat["input_ids"].shape[1], len(chat["pixel_values"])
            if row and (tokens + own_tokens > MOST_TOKENS or patches + own_patches > MOST_PATCHES):
                yield _row(row)
                row, tokens, patches = [], 0, 0
            row.append(chat)
            tokens, patches = tokens + own_tokens, patches + own_patches
        yield _row(row)


def _row(chats: list[Any]) -> Batch:
    """A row of ids, labels, positions and cuts, and the patches and grids of all pictures."""
    ids, labels, positions = (torch.full((MOST_TOKENS,), fill) for fill in (0, IGNORED_LABEL, 0))
    cuts = [0]
    for chat in chats:
        own, part = chat["input_ids"][0], slice(cuts[-1], cuts[-1] + chat["input_ids"].shape[1])
        ids[part], positions[part] = own, torch.arange(len(own))
        labels[part] = torch.where(own == IMAGE, IGNORED_LABEL, own)
        cuts.append(part.stop)
    patches, grids = (torch.cat([chat[name] for chat in chats]) for name in ("pixel_values", "image_grid_thw"))
    return [ids, labels, positions, torch.tensor(cuts, dtype=torch.int32), patches, grids], len(chats)


def _pictured(work: Work) -> Epochs:
    return arrays_of(DataLoader(_Rows(work), batch_size=None, num_workers=work.workers), lambda row: row)


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {"transformers": {"pictured": _pictured}}
