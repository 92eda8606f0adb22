"""NextToken: rows of token ids, each token to be predicted from those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fastio.errors import FastioError
from fastio.transforms.batch.batch_transform import BatchTransform

__all__ = ["NextToken"]

_NO_TOKEN = -100  # the label that cross_entropy ignores


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
    """
    Batches of PadCollate (padded on the right) or ChunkCollate: ``input_ids`` int64 (B, L), ``attention_mask`` (B,
    L).

    Labels of samples are ignored. ``shape`` is (L,) of random batches; ``outputs`` is the size of the vocabulary.
    """

    shape: tuple[int]
    outputs: int

    def prepared(self, batch: Any, layout: torch.memory_format) -> Any:
        """Return the batch unchanged."""
        return batch

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """
        Return the cross entropy of every token but the first of its row; padding does not count.

        Attention that only looks back cannot see the padding, which comes after the tokens, so it needs no mask.
        """
        ids, mask = batch["input_ids"], batch["attention_mask"]
        wanted = torch.where(mask, ids, _NO_TOKEN)[:, 1:]
        logits = network(ids)[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    def random_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return random ids without padding."""
        ids = torch.randint(0, self.outputs, (batch_size, *self.shape), generator=generator)
        lengths = torch.full((batch_size,), self.shape[0])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids, dtype=torch.bool), "lengths": lengths}

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """Return no transforms."""
        return []

    def check(self, batch: Any, where: str) -> None:
        if not isinstance(batch, dict) or not {"input_ids", "attention_mask"} <= batch.keys():
            got = "a dict with " + ", ".join(batch) if isinstance(batch, dict) else "no token ids"
            raise FastioError(
                f"{where}: expected padded or chunked token ids (input_ids, attention_mask), got {got}: pack text "
                "with --tokenizer, or choose another --model"
            )
        ids, mask = batch["input_ids"], batch["attention_mask"]
        if ids.ndim != 2 or ids.shape[1] < 2:
            raise FastioError(f"{where}: rows of {ids.shape[-1]} tokens; predicting the next token needs at least 2")
        if not bool(mask[:, 0].all()):
            raise FastioError(f"{where}: a row begins with padding; the model takes padding on the right")
        least, most = int(ids.min()), int(ids.max())
        if least < 0 or most >= self.outputs:
            raise FastioError(f"{where}: token ids from {least} to {most}, but a vocabulary of {self.outputs}")
