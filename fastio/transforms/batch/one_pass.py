"""Crop, flip, normalise, dtype and memory format in one pass: a Triton kernel on a GPU, elsewhere torch operations."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final

import torch

from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import RenderTarget, gather

__all__ = ["one_pass", "plain_pass"]

_OLDEST_TRITON: Final = (3, 4)  # that the kernels are tested with; torch for CUDA includes it since 2.8


def one_pass(
    images: torch.Tensor, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None
) -> torch.Tensor:
    """
    Apply ``finish`` to pictures (B, C, H, W), or to what plans ``rows`` (B, 13) that do not resample make of them.

    With plans, the result is channels_last. Triton and torch may differ in the last rounding, where one of them
    multiplies and adds in a single step.
    """
    finish.check(images.shape[1])
    if images.is_cuda and images.shape[1] <= 4 and images.numel() and _has_triton():
        from fastio.transforms.batch.triton_pass import triton_pass

        return triton_pass(images, finish, rows, target)
    return plain_pass(images, finish, rows, target)


def plain_pass(
    images: torch.Tensor, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None
) -> torch.Tensor:
    """``one_pass`` with torch's operations."""
    if rows is not None:
        assert target is not None
        images = gather(images, rows, target)
    return finish.run(images)


@cache
def _has_triton() -> bool:
    """Return whether a Triton that the kernels run with is installed; torch for CUDA includes one on most platforms."""
    if find_spec("triton") is None:
        return False
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return (int(major), int(minor)) >= _OLDEST_TRITON
