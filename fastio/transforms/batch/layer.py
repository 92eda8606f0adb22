"""NormalizeLayer: Normalize as a part of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from fastio.lazy import torch, torch_base
from fastio.transforms.batch.finish import Finish, Normalize
from fastio.types.options import explains_names

if TYPE_CHECKING:
    from torch.nn import Module
else:
    Module = torch_base("nn.Module")

__all__ = ["NormalizeLayer"]


class NormalizeLayer(Module):
    """
    Normalize as the first layer of a network: takes uint8 pictures, returns what the network computes with.

    It computes in float32 whatever the network's dtype; only its output has that dtype, so ``network.half()`` changes
    the output alone. It has no parameters and nothing in ``state_dict``.
    """

    @explains_names()
    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)
        self._dtype = torch.float32

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Normalise pictures (B, C, H, W), uint8 or floating from 0 to 1."""
        done: torch.Tensor = replace(self.normalize.after(Finish(images.dtype)), dtype=self._dtype).run(images)
        return done

    def extra_repr(self) -> str:
        return f"mean={self.normalize.mean}, std={self.normalize.std}"

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        # torch tells modules about half(), to() and the like through _apply; there is no tensor here that would show
        # it.
        self._dtype = fn(torch.empty(0, dtype=self._dtype, device="cpu")).dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call] # torch's
        return self
