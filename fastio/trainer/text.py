"""NextToken: rows of token ids, of which each is to be told from those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fastio.errors import FastioError
from fastio.transforms.batch.batch_transform import BatchTransform

__all__ = ["NextToken"]

_NO_TOKEN = -100  # what cross_entropy leaves out


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
    """
    Batches of PadCollate (padded on the right) or ChunkCollate: ``input_ids`` int64 (B, L), ``attention_mask`` (B, L).

    Labels of samples are not looked at. ``shape`` is (L,) of random batches; ``outputs`` is the vocabulary.
    """

    shape: tuple[int]
    outputs: int

    def prepared(self, batch: Any, layout: torch.memory_format) -> Any:
        """As it is."""
        return batch

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """
        Cross entropy of every token but the first of its row; padding counts for nothing.

        Attention that looks back only cannot see the padding, which is behind the tokens: it needs no mask.
        """
        ids, mask = batch["input_ids"], batch["attention_mask"]
        wanted = torch.where(mask, ids, _NO_TOKEN)[:, 1:]
        logits = network(ids)[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    def random_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Random ids, no padding."""
        ids = torch.randint(0, self.outputs, (batch_size, *self.shape), generator=generator)
        lengths = torch.full((batch_size,), self.shape[0])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids, dtype=torch.bool), "lengths": lengths}

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """None."""
        return []

    def check(self, batch: Any, where: str) -> None:
        """As Task.check."""
        if not isinstance(batch, dict) or not {"input_ids", "attention_mask"} <= batch.keys():
            got = "a dict with " + ", ".join(batch) if isinstance(batch, dict) else "no token ids"
            raise FastioError(
                f"{where}: expected padded or chunked token ids (input_ids, attention_mask), got {got}; pack text with "
                f"--tokenizer, or choose another --model"
            )
        ids, mask = batch["input_ids"], batch["attention_mask"]
        if ids.ndim != 2 or ids.shape[1] < 2:
            raise FastioError(f"{where}: rows of {ids.shape[-1]} tokens; the next token can be told from 2 on")
        if not bool(mask[:, 0].all()):
            raise FastioError(f"{where}: a row that begins with padding; the model takes padding on the right")
        least, most = int(ids.min()), int(ids.max())
        if least < 0 or most >= self.outputs:
            raise FastioError(f"{where}: token ids from {least} to {most}, but a vocabulary of {self.outputs}")
