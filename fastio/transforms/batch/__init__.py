"""Transforms of whole batches in torch: on the device after the copy, or on the CPU with the same code."""

from __future__ import annotations

from fastio.transforms.batch.batch_transform import BatchTransform, Pictures
from fastio.transforms.batch.colour import ColorJitter, RandAugment, TrivialAugmentWide
from fastio.transforms.batch.finish import ChannelsLast, Normalize, NormalizeLayer, ToDtype
from fastio.transforms.batch.mix import CutMix, MixUp, RandomErasing
from fastio.transforms.batch.recipe import Recipe

__all__ = [
    "BatchTransform",
    "ChannelsLast",
    "ColorJitter",
    "CutMix",
    "MixUp",
    "Normalize",
    "NormalizeLayer",
    "Pictures",
    "RandAugment",
    "RandomErasing",
    "Recipe",
    "ToDtype",
    "TrivialAugmentWide",
]
