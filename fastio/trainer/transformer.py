"""A small decoder-only transformer for text."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from fastio.trainer.text import NextToken
from fastio.trainer.workload import Workload

__all__ = ["TRANSFORMER", "Transformer"]


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
