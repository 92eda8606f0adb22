"""NextToken: token ids, each to be predicted from those before it, and a small decoder-only transformer for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fastio.errors import FastioError
from fastio.measure.trainer.step import Workload
from fastio.transforms.batch.batch_transform import BatchTransform

__all__ = [
    "TRANSFORMER",
    "NextToken",
    "Transformer",
]


# NextToken: rows of token ids, each token to be predicted from those before it.

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


class Transformer(nn.Module):
    """
    Turns token ids (B, L) of any length into scores (B, L, vocabulary); a token sees only those before it.

    Layers normalise first; positions are sines (Vaswani et al., 3.5); the embedding is also the last layer.
    """

    def __init__(self, vocabulary: int, *, layers: int = 4, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return scores of the next token at every position."""
        embedded = self.embedding(ids)
        width = embedded.shape[-1]
        tokens = embedded * math.sqrt(width) + _places(ids.shape[1], width, like=embedded)
        return functional.linear(self.norm(self.layers(tokens)), self.embedding.weight)


class _Layer(nn.Module):
    """Attention, then two fully connected layers, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        query, key, value = self.into(self.norm(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.out(attended.transpose(1, 2).flatten(2))
        changed: torch.Tensor = tokens + self.body(tokens)
        return changed


def _places(count: int, width: int, *, like: torch.Tensor) -> torch.Tensor:
    """Return (count, width): sines, then cosines, of wavelengths from 2 pi to 10000 times that."""
    half = width // 2
    wavelengths = torch.exp(torch.arange(half, device=like.device) * (-math.log(10_000) / half))
    angles = torch.arange(count, device=like.device)[:, None] * wavelengths
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(like.dtype)


TRANSFORMER = Workload(
    name="transformer",
    task=NextToken(shape=(256,), outputs=8192),
    batch_size=32,
    build=Transformer,
    optimizer=partial(torch.optim.AdamW, lr=3e-4),
)
